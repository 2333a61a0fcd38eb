// Arithmetic, concatenation and repetition (the operators of ops.h that make new values).
#include <cmath>
#include <limits>

#include "text/jinja/budget.h"
#include "text/jinja/format.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {
namespace {

constexpr size_t kMaxItems = size_t{1} << 22;

const char* Symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    case BinaryOp::kPower:
      return "** or pow()";
  }
  return "?";
}

bool Small(const Value& v) { return v.kind() == Kind::kInt || v.is_bool(); }

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t FloorModulo(int64_t a, int64_t b) {
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Value IntegerPower(const Value& a, const Value& b) {
  if (b.kind() == Kind::kBigInt ? b.big().negative() : b.small_int() < 0) {
    const double base = a.ToDouble();
    if (base == 0) Raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(base, b.ToDouble()));
  }
  const uint64_t exponent = b.kind() == Kind::kBigInt ? std::numeric_limits<uint64_t>::max()
                                                      : static_cast<uint64_t>(b.small_int());
  return Value::Int(BigInt::Power(a.ToBig(), exponent));
}

Value IntegerOp(BinaryOp op, const Value& a, const Value& b) {
  const bool zero = b.kind() != Kind::kBigInt && b.small_int() == 0;
  if (Small(a) && Small(b)) {
    const int64_t x = a.small_int();
    const int64_t y = b.small_int();
    int64_t result = 0;
    // The one quotient that does not fit.
    const bool overflowing = y == -1 && x == std::numeric_limits<int64_t>::min();
    switch (op) {
      case BinaryOp::kAdd:
        if (!__builtin_add_overflow(x, y, &result)) return Value::Int(result);
        break;
      case BinaryOp::kSubtract:
        if (!__builtin_sub_overflow(x, y, &result)) return Value::Int(result);
        break;
      case BinaryOp::kMultiply:
        if (!__builtin_mul_overflow(x, y, &result)) return Value::Int(result);
        break;
      case BinaryOp::kFloorDivide:
        if (!zero && !overflowing) return Value::Int(FloorDivide(x, y));
        break;
      case BinaryOp::kModulo:
        if (!zero && !overflowing) return Value::Int(FloorModulo(x, y));
        break;
      default:
        break;
    }
  }
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Int(a.ToBig() + b.ToBig());
    case BinaryOp::kSubtract:
      return Value::Int(a.ToBig() - b.ToBig());
    case BinaryOp::kMultiply:
      return Value::Int(a.ToBig() * b.ToBig());
    case BinaryOp::kPower:
      return IntegerPower(a, b);
    case BinaryOp::kDivide:
      if (zero) Raise("ZeroDivisionError", "division by zero");
      return Value::Float(BigInt::TrueDivide(a.ToBig(), b.ToBig()));
    case BinaryOp::kFloorDivide:
      if (zero) Raise("ZeroDivisionError", "integer division or modulo by zero");
      return Value::Int(BigInt::FloorDivide(a.ToBig(), b.ToBig()));
    case BinaryOp::kModulo:
      if (zero) Raise("ZeroDivisionError", "integer modulo by zero");
      return Value::Int(BigInt::FloorModulo(a.ToBig(), b.ToBig()));
  }
  return Value();
}

// Python's float remainder (sign of the divisor) and the quotient that goes with it.
double FloatModulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

double FloatFloorDivide(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

double FloatPower(double a, double b) {
  if (a == 0 && b < 0) Raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
    Raise("TypeError", "a power that is a complex number");
  }
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    Raise("OverflowError", "(34, 'Numerical result out of range')");
  }
  return result;
}

Value FloatOp(BinaryOp op, const Value& left, const Value& right) {
  const double a = left.ToDouble();
  const double b = right.ToDouble();
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSubtract:
      return Value::Float(a - b);
    case BinaryOp::kMultiply:
      return Value::Float(a * b);
    case BinaryOp::kDivide:
      if (b == 0) Raise("ZeroDivisionError", "float division by zero");
      return Value::Float(a / b);
    case BinaryOp::kFloorDivide:
      if (b == 0) Raise("ZeroDivisionError", "float floor division by zero");
      return Value::Float(FloatFloorDivide(a, b));
    case BinaryOp::kModulo:
      if (b == 0) Raise("ZeroDivisionError", "float modulo");
      return Value::Float(FloatModulo(a, b));
    case BinaryOp::kPower:
      return Value::Float(FloatPower(a, b));
  }
  return Value();
}

bool IsSequence(const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); }

Value Repeat(const Value& sequence, const Value& count_value) {
  if (count_value.kind() == Kind::kBigInt) {
    Raise("OverflowError", "cannot fit 'int' into an index-sized integer");
  }
  const int64_t count = std::max<int64_t>(0, ToIndex(count_value));
  const auto times = static_cast<uint64_t>(count);
  if (sequence.is_string()) {
    const Str& part = sequence.str();
    if (!part.text.empty() && times > kMaxStringBytes / part.text.size()) {
      CheckStringSize(kMaxStringBytes + 1);
    }
    Budget::SpendBytes(part.text.size() * times);
    Str out;
    out.safe = part.safe;
    if (!part.text.empty()) {
      for (uint64_t i = 0; i < times; ++i) out.Append(part);
    }
    return Value::String(std::move(out));
  }
  const auto& items = sequence.items();
  if (!items.empty() && times > kMaxItems / items.size())
    Raise("MemoryError", "a list is too long");
  std::vector<Value> out;
  if (!items.empty()) {
    out.reserve(items.size() * times);
    for (uint64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.is_list() ? Value::List(std::move(out)) : Value::Tuple(std::move(out));
}

Value Concatenate(const Value& a, const Value& b) {
  if (a.is_string()) {
    Str out;
    out.text.reserve(a.text().size() + b.text().size());
    out.safe = a.str().safe || b.str().safe;
    const auto append = [&](const Str& part) {
      out.Append(out.safe && !part.safe ? EscapeHtml(part) : part);
    };
    append(a.str());
    append(b.str());
    return Value::String(std::move(out));
  }
  std::vector<Value> out;
  if (a.items().size() + b.items().size() > kMaxItems) Raise("MemoryError", "a list is too long");
  out.reserve(a.items().size() + b.items().size());
  out.insert(out.end(), a.items().begin(), a.items().end());
  out.insert(out.end(), b.items().begin(), b.items().end());
  return a.is_list() ? Value::List(std::move(out)) : Value::Tuple(std::move(out));
}

[[noreturn]] void Unsupported(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kAdd && IsSequence(a)) {
    const std::string type = a.is_string() ? "str" : a.is_list() ? "list" : "tuple";
    RaiseTypeError("can only concatenate " + type + " (not \"" + TypeName(b) + "\") to " + type);
  }
  if (op == BinaryOp::kMultiply && (IsSequence(a) || IsSequence(b))) {
    RaiseTypeError("can't multiply sequence by non-int of type '" +
                   TypeName(IsSequence(a) ? b : a) + "'");
  }
  RaiseTypeError(std::string("unsupported operand type(s) for ") + Symbol(op) + ": '" +
                 TypeName(a) + "' and '" + TypeName(b) + "'");
}

}  // namespace

Value Binary(BinaryOp op, const Value& a, const Value& b) {
  Budget::Spend(1);
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? FloatOp(op, a, b) : IntegerOp(op, a, b);
  }
  if (op == BinaryOp::kModulo && a.is_string()) return Value::String(PercentFormat(a.str(), b));
  if (a.is_undefined()) a.undefined().Fail();
  if (b.is_undefined()) b.undefined().Fail();
  if (op == BinaryOp::kAdd && a.kind() == b.kind() && IsSequence(a)) return Concatenate(a, b);
  if (op == BinaryOp::kMultiply) {
    if (IsSequence(a) && b.is_integer()) return Repeat(a, b);
    if (IsSequence(b) && a.is_integer()) return Repeat(b, a);
  }
  Unsupported(op, a, b);
}

Value Negate(const Value& value) {
  if (value.is_undefined()) value.undefined().Fail();
  if (value.is_float()) return Value::Float(-value.real());
  if (value.is_integer()) return Value::Int(-value.ToBig());
  RaiseTypeError("bad operand type for unary -: '" + TypeName(value) + "'");
}

Value Positive(const Value& value) {
  if (value.is_undefined()) value.undefined().Fail();
  if (value.is_bool()) return Value::Int(value.small_int());
  if (value.is_number()) return value;
  RaiseTypeError("bad operand type for unary +: '" + TypeName(value) + "'");
}

}  // namespace moewe::text::jinja
