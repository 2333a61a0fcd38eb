// Any bytes as a .sig beside a file and as a key: refused, never accepted. Nobody forges a
// signature by chance.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "formats/signature.h"
#include "moewe/error.h"
#include "scratch_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using moewe::formats::SigningKey;
  static constexpr std::array kNames = {"m.cmf.sig", "key.hex"};
  static moewe::fuzz::ScratchFolder folder;
  const std::string model = folder.path() + "/m.cmf";
  static const bool made = [&] {
    std::ofstream(model) << "not what was signed";
    return true;
  }();
  if (!made) return 0;
  folder.Fill({data, size}, kNames);
  try {
    moewe::formats::CheckSignature(model, [](uint64_t, uint64_t) {});
    std::abort();
  } catch (const moewe::Error&) {
  }
  try {
    if (SigningKey::Read(folder.path() + "/key.hex").PublicKey().size() != 64) std::abort();
  } catch (const moewe::Error&) {
  }
  return 0;
}
