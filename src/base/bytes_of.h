// Text and plain values as the bytes that they are.
#ifndef MOEWE_BASE_BYTES_OF_H_
#define MOEWE_BASE_BYTES_OF_H_

#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/byte_reader.h"

namespace moewe {

inline Bytes BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

template <typename T>
  requires std::is_trivially_copyable_v<T>
Bytes BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}
template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  return BytesOf(std::span<const T>(values));
}

}  // namespace moewe

#endif  // MOEWE_BASE_BYTES_OF_H_
