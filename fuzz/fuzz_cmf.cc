// Any bytes given to the CMF parsers: they parse or they throw moewe::Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/cmf/cmf_file.h"
#include "moewe/error.h"

namespace {

template <typename Parse>
void Try(const Parse& parse) {
  try {
    parse();
  } catch (const moewe::Error&) {
  }
}

// Part after part, past the stored hashes, which a mutation nearly always breaks.
void ParseParts(moewe::Bytes file) {
  namespace cmf = moewe::formats::cmf;
  const std::string path = "fuzz";
  const cmf::Envelope envelope = cmf::ParseEnvelope(file, path);
  Try([&] { cmf::ParseDirectory(file, envelope, path); });
  Try([&] { cmf::ParseSparseIndex(file, envelope, path); });
  const cmf::Header header = cmf::ParseHeader(file, envelope, path);
  Try([&] { cmf::ParseMasks(file, envelope, header, path); });
  Try([&] { cmf::SectionHash(header.json, "masks", path); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const moewe::Bytes file(data, size);
  Try([&] { ParseParts(file); });
  Try([&] { moewe::formats::ParseCmf(file, "fuzz"); });
  return 0;
}
