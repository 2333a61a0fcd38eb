#include "base/shown.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace moewe {
namespace {

std::string Escaped(uint8_t byte) {
  switch (byte) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\x{:02x}", byte);
  }
}

}  // namespace

std::string Shown(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = Utf8Prefix(BytesOf(text));
    for (size_t i = 0; i < valid; ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      // U+0080 to U+009F are C2 80 to C2 9F.
      const bool c1 = byte == 0xC2 && static_cast<uint8_t>(text[i + 1]) < 0xA0;
      if (c1) {
        shown += fmt::format("\\u{:04x}", static_cast<uint8_t>(text[++i]));
      } else if (byte < 0x20 || byte == 0x7F) {
        shown += Escaped(byte);
      } else {
        shown += text[i];
      }
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    shown += Escaped(static_cast<uint8_t>(text.front()));
    text.remove_prefix(1);
  }
  return shown;
}

}  // namespace moewe
