// Integers of any size (within a limit), for when 64 bits are not enough. Boost.Multiprecision
// stays in bigint.cc.
#ifndef MOEWE_TEXT_JINJA_BIGINT_H_
#define MOEWE_TEXT_JINJA_BIGINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moewe::text::jinja {

// Immutable. Results that need more than 2^17 bits are an OverflowError.
class BigInt {
 public:
  struct Rep;

  explicit BigInt(int64_t value);
  explicit BigInt(std::shared_ptr<const Rep> rep) : rep_(std::move(rep)) {}
  // Digits of base 2, 8, 10 or 16 without sign or prefix; false digits are the caller's fault.
  static BigInt FromDigits(std::string_view digits, int base);
  static BigInt FromDouble(double value);  // truncates; finite values only

  std::optional<int64_t> ToInt64() const;  // if it fits
  double ToDouble() const;                 // OverflowError if it is too large
  bool negative() const;
  size_t bit_length() const;
  // Lower-case digits of base 2, 8, 10 or 16 with a sign. Base 10 refuses more than 4300 digits, as
  // Python does.
  std::string ToString(int base = 10) const;
  size_t Hash() const;

  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  BigInt operator-() const;
  // Rounded down; the divisor is not zero.
  static BigInt FloorDivide(const BigInt& a, const BigInt& b);
  static BigInt FloorModulo(const BigInt& a, const BigInt& b);
  // The quotient as Python's true division gives it.
  static double TrueDivide(const BigInt& a, const BigInt& b);
  static BigInt Power(const BigInt& base, uint64_t exponent);
  static int Compare(const BigInt& a, const BigInt& b);
  static int Compare(const BigInt& a, double b);  // b is not NaN

 private:
  std::shared_ptr<const Rep> rep_;
};

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_BIGINT_H_
