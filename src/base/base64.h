// Base64 with the standard alphabet and padding (RFC 4648, section 4).
#ifndef MOEWE_BASE_BASE64_H_
#define MOEWE_BASE_BASE64_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"

namespace moewe {

std::string Base64Encode(Bytes bytes);

// Nothing unless `text` is what Base64Encode gives for some bytes: no blanks, padding complete, the
// bits that padding leaves over zero.
std::optional<std::vector<uint8_t>> Base64Decode(std::string_view text);

}  // namespace moewe

#endif  // MOEWE_BASE_BASE64_H_
