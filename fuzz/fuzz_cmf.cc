// Any bytes given to the CMF parsers: they parse or they throw moewe::Error. What opens can be
// decoded, and what verifies opens.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "formats/cmf/cmf_file.h"
#include "formats/verify.h"
#include "model/config.h"
#include "moewe/error.h"
#include "platform/thread_pool.h"
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

// Envelope hashes say "absent" from here on: a mutation behind them would never get past them.
void ForgetHashes(std::vector<uint8_t>* file) {
  constexpr size_t kHashes = 0x70;
  if (file->size() < moewe::formats::cmf::kEnvelopeSize) return;
  std::fill_n(file->begin() + kHashes, 16, uint8_t{0});
}

bool Opens(const std::string& path) {
  try {
    const auto file = moewe::formats::CmfFile::Open(path);
    for (const moewe::formats::TensorView& tensor : file->tensors()) {
      if (file->Find(tensor.name) != &tensor) std::abort();
      const moewe::quant::Codec* codec = moewe::quant::FindCodec(tensor.dtype);
      if (codec == nullptr) continue;
      try {
        codec->validate(tensor.bytes, tensor.matrix(), {path, tensor.name, {}});
      } catch (const moewe::Error&) {
        continue;
      }
      moewe::quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {});
    }
    Try([&] { moewe::model::ReadConfig(*file); });
    return true;
  } catch (const moewe::Error&) {
    return false;
  }
}

// The file under a name of its own, and as the first shard of a set that is not there.
void OpenAndVerify(moewe::Bytes bytes) {
  static moewe::fuzz::ScratchFolder folder;
  static moewe::ThreadPool pool(1);
  const std::string path = folder.path() + "/f-00001-of-00001.cmf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const bool opens = Opens(path);
  bool verified = false;
  Try([&] {
    const auto report = moewe::formats::Verify(path, {}, &pool, [](uint64_t, uint64_t) {});
    verified = report.ok() && !report.shard;
  });
  const bool is_cmf = bytes.size() >= 4 && std::memcmp(bytes.data(), "CMF\x01", 4) == 0;
  if (is_cmf && verified && !opens) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Try([&] { ParseParts({data, size}); });
  Try([&] { moewe::formats::ParseCmf({data, size}, "fuzz"); });
  std::vector<uint8_t> file(data, data + size);
  ForgetHashes(&file);
  OpenAndVerify(file);
  return 0;
}
