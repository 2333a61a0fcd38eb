// Whether bytes are UTF-8.
#ifndef MOEWE_BASE_UTF8_H_
#define MOEWE_BASE_UTF8_H_

#include <string_view>

#include "base/byte_reader.h"

namespace moewe {

// Well-formed as Unicode defines it: no overlong forms, no surrogates, nothing past U+10FFFF.
bool IsUtf8(Bytes bytes);
inline bool IsUtf8(std::string_view text) {
  return IsUtf8(Bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

}  // namespace moewe

#endif  // MOEWE_BASE_UTF8_H_
