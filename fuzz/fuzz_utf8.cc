// Any bytes as UTF-8 and as ids of a stream: the check agrees with a decoder written another way;
// every piece that a stream gives out is whole characters, and the pieces join to the whole text
// where that begins with what was shown.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace {

using moewe::text::TokenId;
using moewe::text::Tokenizer;

// One code point from `bytes` by arithmetic; false if there is none at the start.
bool TakeCodePoint(moewe::Bytes* bytes) {
  const uint8_t first = bytes->front();
  const size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : 4;
  if (first >= 0x80 && (first < 0xC0 || first > 0xF7)) return false;
  if (bytes->size() < length) return false;
  uint32_t point = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((*bytes)[i] >> 6 != 2) return false;
    point = point << 6 | ((*bytes)[i] & 0x3Fu);
  }
  static constexpr uint32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kFirst[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
    return false;
  }
  *bytes = bytes->subspan(length);
  return true;
}

bool IsUtf8ByDecoding(moewe::Bytes bytes) {
  while (!bytes.empty()) {
    if (!TakeCodePoint(&bytes)) return false;
  }
  return true;
}

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  const std::string path = MOEWE_SOURCE_DIR "/tests/golden/text/mini/" + name;
  std::ifstream in(path, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
  return Tokenizer::FromJson(bytes, path);
}

void CheckStream(const Tokenizer& tokenizer, moewe::Bytes data) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < data.size(); i += 2) {
    const auto id = static_cast<size_t>(data[i] | data[i + 1] << 8);
    ids.push_back(static_cast<TokenId>(id % tokenizer.vocab_size()));
  }
  Tokenizer::Stream stream(tokenizer, false);
  std::string joined;
  for (const TokenId id : ids) {
    const std::string piece = stream.Push(id);
    if (!moewe::IsUtf8(piece)) std::abort();
    joined += piece;
  }
  const std::string whole = tokenizer.Decode(ids, false);
  // Later bytes can make a decoder think again about characters that were shown.
  const bool kept = whole.starts_with(joined);
  joined += stream.Finish();
  if (!moewe::IsUtf8(joined) || (kept && joined != whole)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const moewe::Bytes bytes(data, size);
  if (moewe::IsUtf8(bytes) != IsUtf8ByDecoding(bytes)) std::abort();
  static const auto byte_level = Load("dec_bytelevel.json");
  static const auto byte_fallback = Load("dec_byte_fallback.json");
  const moewe::Bytes ids = bytes.first(std::min<size_t>(size, 256));
  CheckStream(*byte_level, ids);
  CheckStream(*byte_fallback, ids);
  return 0;
}
