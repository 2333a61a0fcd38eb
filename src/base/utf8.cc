#include "base/utf8.h"

namespace moewe {

bool IsUtf8(Bytes bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
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
      return false;
    }
    if (more > bytes.size() - i) return false;
    for (; more > 0; --more) {
      const uint8_t byte = bytes[i++];
      if (byte < low || byte > high) return false;
      low = 0x80;
      high = 0xBF;
    }
  }
  return true;
}

}  // namespace moewe
