#include "base/utf8.h"

#include <utility>

namespace moewe {

size_t Utf8Prefix(Bytes bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    const size_t begin = i;
    const uint8_t lead = bytes[i++];
    if (lead < 0x80) continue;
    // Bounds of the first continuation byte exclude overlong forms, surrogates and values past
    // U+10FFFF.
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    size_t more = 0;
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return begin;
    }
    if (more > bytes.size() - i) return begin;
    for (; more > 0; --more) {
      const uint8_t byte = bytes[i++];
      if (byte < low || byte > high) return begin;
      low = 0x80;
      high = 0xBF;
    }
  }
  return i;
}

void RequireUtf8(std::string_view text, Where where) {
  const Bytes bytes = BytesOf(text);
  const size_t valid = Utf8Prefix(bytes);
  if (valid == bytes.size()) return;
  where.offset = valid;
  throw Error(ErrorCode::kUsage, "the text is not UTF-8", std::move(where));
}

void RequireLine(std::string_view text, Where where) {
  RequireUtf8(text, where);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    // U+0080 to U+009F are C2 80 to C2 9F.
    const bool c1 = byte == 0xC2 && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (byte >= 0x20 && byte != 0x7F && !c1) continue;
    where.offset = i;
    throw Error(ErrorCode::kUsage, "the text has a control character", std::move(where));
  }
}

}  // namespace moewe
