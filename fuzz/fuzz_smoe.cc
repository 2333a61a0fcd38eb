// Any bytes as a vault beside any Scout: both are refused, or they make a model whose experts
// decode within the file.
//
// Input: [u32 length of the vault][vault][Scout].
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "formats/smoe/smoe_vault.h"
#include "formats/smoe/vault_tables.h"
#include "model/config.h"
#include "moewe/error.h"
#include "quant/codec.h"
#include "scratch_folder.h"

namespace {

template <typename Parse>
void Try(const Parse& parse) {
  try {
    parse();
  } catch (const moewe::Error&) {
  }
}

void Put(const std::string& path, moewe::Bytes bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void OpenPair(const std::string& vault, const std::string& scout) {
  const auto opened = moewe::formats::SmoeVault::Open(vault, scout);
  for (const moewe::formats::TensorView& tensor : opened->tensors()) {
    if (tensor.bytes.size() > 1 << 16) continue;
    moewe::quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {});
  }
  moewe::model::ReadConfig(*opened);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t length = 0;
  if (size < sizeof(length)) return 0;
  std::memcpy(&length, data, sizeof(length));
  const moewe::Bytes rest(data + sizeof(length), size - sizeof(length));
  const moewe::Bytes vault = rest.first(std::min<size_t>(length, rest.size()));
  // Bytes of their own, so that reading past them is seen.
  const std::vector<uint8_t> copy(vault.begin(), vault.end());
  Try([&] { moewe::formats::smoe::ParseVaultTables(copy, "fuzz"); });
  Try([&] { moewe::formats::smoe::ParseVaultTables(copy, "fuzz", [](const moewe::Error&) {}); });
  static moewe::fuzz::ScratchFolder folder;
  folder.Fill({}, std::array<const char*, 0>{});
  const std::string vault_path = folder.path() + "/f.smoe";
  const std::string scout_path = folder.path() + "/f.safetensors";
  Put(vault_path, vault);
  Put(scout_path, rest.subspan(vault.size()));
  Try([&] { OpenPair(vault_path, scout_path); });
  return 0;
}
