#include "text/jinja/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "text/jinja/ops.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// Without surrounding whitespace, decimal digits of every script as ASCII.
std::string Plain(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    const int digit = c < 0x80 ? -1 : DecimalValue(c);
    if (digit >= 0) {
      out += static_cast<char>('0' + digit);
    } else if (c >= 0x80 && IsSpace(c)) {
      out += ' ';
    } else {
      AppendUtf8(out, c);
    }
  }
  const auto space = [](char c) { return IsSpace(static_cast<unsigned char>(c)); };
  while (!out.empty() && static_cast<unsigned char>(out.back()) < 0x80 && space(out.back()))
    out.pop_back();
  size_t begin = 0;
  while (begin < out.size() && static_cast<unsigned char>(out[begin]) < 0x80 && space(out[begin]))
    ++begin;
  return out.substr(begin);
}

// Takes single underscores between digits out; false if one stands elsewhere.
bool DropUnderscores(std::string& digits) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      out += digits[i];
    } else if (i == 0 || i + 1 == digits.size() || digits[i + 1] == '_') {
      return false;
    }
  }
  digits = std::move(out);
  return true;
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return (c | 0x20) - 'a' + 10;
  return 99;
}

}  // namespace

std::optional<Value> ParseInteger(std::string_view text, int base) {
  std::string digits = Plain(text);
  bool minus = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    minus = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (digits.size() > 1 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    const int prefix_base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
      base = prefix_base;
      digits.erase(0, 2);
      if (!digits.empty() && digits[0] == '_') digits.erase(0, 1);
    }
  }
  if (base == 0) {
    base = 10;
    if (digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of("0_") != std::string::npos) {
      return std::nullopt;
    }
  }
  if (digits.empty() || !DropUnderscores(digits)) return std::nullopt;
  for (const char c : digits) {
    if (DigitValue(c) >= base) return std::nullopt;
  }
  int64_t small = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), small, base);
  if (result.ec == std::errc()) return Value::Int(minus ? -small : small);
  BigInt value(0);
  if (base == 2 || base == 8 || base == 10 || base == 16) {
    value = BigInt::FromDigits(digits, base);
  } else {
    if (digits.size() > 4300)
      RaiseValueError("Exceeds the limit (4300 digits) for integer string conversion");
    for (const char c : digits) value = value * BigInt(base) + BigInt(DigitValue(c));
  }
  return Value::Int(minus ? -value : value);
}

std::optional<double> ParseFloat(std::string_view text) {
  std::string digits = Plain(text);
  bool minus = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    minus = digits[0] == '-';
    digits.erase(0, 1);
  }
  std::string lower = digits;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    // An underscore must stand between digits.
    for (size_t i = 0; i < digits.size(); ++i) {
      if (digits[i] != '_') continue;
      const auto digit = [&](size_t k) {
        return k < digits.size() && digits[k] >= '0' && digits[k] <= '9';
      };
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
    }
    std::erase(digits, '_');
    if (digits.empty() || digits.find_first_not_of("0123456789.eE+-") != std::string::npos)
      return std::nullopt;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ptr != digits.data() + digits.size()) return std::nullopt;
    if (result.ec == std::errc::result_out_of_range) {
      value = std::strtod(digits.c_str(), nullptr);
    } else if (result.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return minus ? -value : value;
}

Value Truncate(double value) {
  if (std::isnan(value)) RaiseValueError("cannot convert float NaN to integer");
  if (std::isinf(value)) Raise("OverflowError", "cannot convert float infinity to integer");
  return Value::Int(BigInt::FromDouble(value));
}

Value RoundNumber(const Value& number, int64_t digits) {
  if (number.is_integer()) {
    if (digits >= 0) return Positive(number);
    if (digits < -400) return Value::Int(0);
    // To a multiple of a power of ten, half to even.
    const BigInt power = BigInt::Power(BigInt(10), static_cast<uint64_t>(-digits));
    const BigInt value = number.ToBig();
    const BigInt rest = BigInt::FloorModulo(value, power);
    const BigInt down = value - rest;
    const int half = BigInt::Compare(rest + rest, power);
    const bool odd =
        BigInt::FloorModulo(BigInt::FloorDivide(value, power), BigInt(2)).ToInt64() == 1;
    return Value::Int(half > 0 || (half == 0 && odd) ? down + power : down);
  }
  const double value = number.real();
  if (!std::isfinite(value) || digits > 323) return number;
  if (digits < -308) return Value::Float(std::copysign(0.0, value));
  if (digits >= 0) {
    // printf rounds the exact binary value correctly, half to even.
    std::string buffer(static_cast<size_t>(digits) + 330, '\0');
    const int size =
        std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), value);
    buffer.resize(static_cast<size_t>(size));
    return Value::Float(std::strtod(buffer.c_str(), nullptr));
  }
  // The whole part decides, unless it lies exactly in the middle and a fraction follows.
  const BigInt power = BigInt::Power(BigInt(10), static_cast<uint64_t>(-digits));
  const double magnitude = std::fabs(value);
  const BigInt whole = BigInt::FromDouble(magnitude);
  const BigInt rest = BigInt::FloorModulo(whole, power);
  BigInt rounded = whole - rest;
  int half = BigInt::Compare(rest + rest, power);
  if (half == 0 && magnitude != std::trunc(magnitude)) half = 1;
  const bool odd = BigInt::FloorModulo(BigInt::FloorDivide(whole, power), BigInt(2)).ToInt64() == 1;
  if (half > 0 || (half == 0 && odd)) rounded = rounded + power;
  return Value::Float(std::copysign(rounded.ToDouble(), value));
}

}  // namespace moewe::text::jinja
