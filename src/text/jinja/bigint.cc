#include "text/jinja/bigint.h"

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>

#include "text/jinja/budget.h"
#include "text/jinja/error.h"

namespace moewe::text::jinja {

using boost::multiprecision::cpp_int;

struct BigInt::Rep {
  cpp_int value;
};

namespace {

constexpr size_t kMaxBits = size_t{1} << 17;
constexpr size_t kMaxDecimalDigits = 4300;

size_t BitLength(const cpp_int& value) {
  return value == 0 ? 0 : static_cast<size_t>(msb(value < 0 ? cpp_int(-value) : value)) + 1;
}

void CheckBits(size_t bits) {
  if (bits > kMaxBits) Raise("OverflowError", "an integer of the template is too large");
}

BigInt Make(cpp_int value) {
  CheckBits(BitLength(value));
  return BigInt(std::make_shared<const BigInt::Rep>(BigInt::Rep{std::move(value)}));
}

// Schoolbook cost in 64-bit limbs.
void ChargeProduct(size_t bits_a, size_t bits_b) {
  Budget::Spend(1 + (bits_a / 64) * (bits_b / 64) / 64);
}

// Correctly rounded (to even) value of a non-negative integer, saturating to infinity.
double RoundToDouble(const cpp_int& value) {
  const size_t bits = BitLength(value);
  if (bits <= 64) return static_cast<double>(static_cast<uint64_t>(value));
  if (bits > 1100) return std::numeric_limits<double>::infinity();
  const size_t shift = bits - 64;
  uint64_t top = static_cast<uint64_t>(cpp_int(value >> shift));
  // A sticky bit keeps the rounding of what was shifted out right: 64 bits are more than 53 + 2.
  if (lsb(value) < shift) top |= 1;
  return std::ldexp(static_cast<double>(top), static_cast<int>(shift));
}

}  // namespace

BigInt::BigInt(int64_t value) : rep_(std::make_shared<const Rep>(Rep{cpp_int(value)})) {}

BigInt BigInt::FromDigits(std::string_view digits, int base) {
  // Digits of base 10 cost quadratic time.
  const size_t limit = base == 10 ? kMaxDecimalDigits : kMaxBits / 4;
  if (digits.size() > limit) {
    RaiseValueError("Exceeds the limit (" + std::to_string(limit) +
                    " digits) for integer string conversion");
  }
  cpp_int value = 0;
  for (const char c : digits) {
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    value = value * base + digit;
  }
  return Make(std::move(value));
}

BigInt BigInt::FromDouble(double value) { return Make(cpp_int(std::trunc(value))); }

std::optional<int64_t> BigInt::ToInt64() const {
  if (rep_->value < std::numeric_limits<int64_t>::min() ||
      rep_->value > std::numeric_limits<int64_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int64_t>(rep_->value);
}

double BigInt::ToDouble() const {
  const double magnitude = RoundToDouble(negative() ? cpp_int(-rep_->value) : rep_->value);
  if (std::isinf(magnitude)) Raise("OverflowError", "int too large to convert to float");
  return negative() ? -magnitude : magnitude;
}

bool BigInt::negative() const { return rep_->value < 0; }
size_t BigInt::bit_length() const { return BitLength(rep_->value); }

std::string BigInt::ToString(int base) const {
  const cpp_int magnitude = negative() ? cpp_int(-rep_->value) : rep_->value;
  std::string digits;
  if (base == 10) {
    // log10(2) of the bits; one digit of slack, settled by the exact length below.
    if (BitLength(magnitude) * 301 / 1000 <= kMaxDecimalDigits + 1) digits = magnitude.str();
    if (digits.empty() || digits.size() > kMaxDecimalDigits) {
      RaiseValueError(
          "Exceeds the limit (4300 digits) for integer string conversion; use "
          "sys.set_int_max_str_digits() to increase the limit");
    }
    Budget::SpendBytes(digits.size() * 8);
  } else {
    const unsigned bits = base == 2 ? 1 : base == 8 ? 3 : 4;
    const size_t count = std::max<size_t>(1, (BitLength(magnitude) + bits - 1) / bits);
    for (size_t i = count; i-- > 0;) {
      unsigned digit = 0;
      for (unsigned b = 0; b < bits; ++b) {
        digit |= static_cast<unsigned>(bit_test(magnitude, static_cast<unsigned>(i * bits + b)))
                 << b;
      }
      digits += "0123456789abcdef"[digit];
    }
  }
  return negative() ? "-" + digits : digits;
}

size_t BigInt::Hash() const { return std::hash<cpp_int>()(rep_->value); }

BigInt operator+(const BigInt& a, const BigInt& b) { return Make(a.rep_->value + b.rep_->value); }
BigInt operator-(const BigInt& a, const BigInt& b) { return Make(a.rep_->value - b.rep_->value); }
BigInt operator*(const BigInt& a, const BigInt& b) {
  CheckBits(a.bit_length() + b.bit_length());
  ChargeProduct(a.bit_length(), b.bit_length());
  return Make(a.rep_->value * b.rep_->value);
}
BigInt BigInt::operator-() const { return Make(-rep_->value); }

BigInt BigInt::FloorDivide(const BigInt& a, const BigInt& b) {
  ChargeProduct(a.bit_length(), b.bit_length());
  cpp_int quotient;
  cpp_int remainder;
  divide_qr(a.rep_->value, b.rep_->value, quotient, remainder);
  if (remainder != 0 && (remainder < 0) != b.negative()) quotient -= 1;
  return Make(std::move(quotient));
}

BigInt BigInt::FloorModulo(const BigInt& a, const BigInt& b) {
  ChargeProduct(a.bit_length(), b.bit_length());
  cpp_int remainder = a.rep_->value % b.rep_->value;
  if (remainder != 0 && (remainder < 0) != b.negative()) remainder += b.rep_->value;
  return Make(std::move(remainder));
}

double BigInt::TrueDivide(const BigInt& a, const BigInt& b) {
  ChargeProduct(a.bit_length(), b.bit_length());
  const bool minus = a.negative() != b.negative();
  cpp_int numerator = abs(a.rep_->value);
  cpp_int denominator = abs(b.rep_->value);
  if (numerator == 0) return minus ? -0.0 : 0.0;
  // Scale so that the quotient has 66 bits, keep a sticky bit, let ldexp round once more only for
  // subnormals.
  const int64_t shift = static_cast<int64_t>(BitLength(denominator)) -
                        static_cast<int64_t>(BitLength(numerator)) + 66;
  if (shift > 0) numerator <<= static_cast<size_t>(shift);
  if (shift < 0) denominator <<= static_cast<size_t>(-shift);
  cpp_int quotient;
  cpp_int remainder;
  divide_qr(numerator, denominator, quotient, remainder);
  if (remainder != 0) quotient |= 1;
  const int64_t clamped = std::clamp<int64_t>(-shift, -5000, 5000);
  const double magnitude = std::ldexp(RoundToDouble(quotient), static_cast<int>(clamped));
  if (std::isinf(magnitude)) {
    Raise("OverflowError", "integer division result too large for a float");
  }
  return minus ? -magnitude : magnitude;
}

BigInt BigInt::Power(const BigInt& base, uint64_t exponent) {
  const size_t bits = base.bit_length();
  if (bits > 1 && exponent > kMaxBits / (bits - 1)) {
    CheckBits(kMaxBits + 1);
  }
  cpp_int result = 1;
  cpp_int square = base.rep_->value;
  if (bits <= 1)
    return Make(base.negative() && exponent % 2 == 0 ? cpp_int(-square)
                : exponent == 0                      ? result
                                                     : square);
  for (uint64_t rest = exponent; rest > 0; rest >>= 1) {
    ChargeProduct(BitLength(square), BitLength(square));
    if (rest & 1) result *= square;
    if (rest > 1) square *= square;
  }
  return Make(std::move(result));
}

int BigInt::Compare(const BigInt& a, const BigInt& b) {
  const int order = a.rep_->value.compare(b.rep_->value);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

int BigInt::Compare(const BigInt& a, double b) {
  if (std::isinf(b)) return b > 0 ? -1 : 1;
  const int order = Compare(a, FromDouble(b));
  if (order != 0) return order;
  const double fraction = b - std::trunc(b);
  return fraction > 0 ? -1 : fraction < 0 ? 1 : 0;
}

}  // namespace moewe::text::jinja
