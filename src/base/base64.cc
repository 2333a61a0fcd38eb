#include "base/base64.h"

#include <algorithm>
#include <array>

namespace moewe {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 64;

constexpr std::array<uint8_t, 256> kValues = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return values;
}();

}  // namespace

std::string Base64Encode(Bytes bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::vector<uint8_t>> Base64Decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < std::min<size_t>(2, text.size()) && text[text.size() - 1 - padding] == '=') {
    ++padding;
  }
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t digits = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; ++k) {
      const uint8_t value = k < digits ? kValues[static_cast<uint8_t>(text[i + k])] : uint8_t{0};
      if (value == kNoDigit) return std::nullopt;
      bits = bits << 6 | value;
    }
    for (size_t k = 0; k + 1 < digits; ++k) {
      bytes.push_back(static_cast<uint8_t>(bits >> (16 - 8 * k)));
    }
    const uint32_t unused = digits == 4 ? 0 : (1u << (8 * (4 - digits))) - 1;
    if ((bits & unused) != 0) return std::nullopt;
  }
  return bytes;
}

}  // namespace moewe
