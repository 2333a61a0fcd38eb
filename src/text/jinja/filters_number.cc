// Filters on numbers.
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/filter_tools.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {
namespace {

Value Abs(Interpreter&, const Value& input, Args& args) {
  const Arguments given("abs", args, {}, 0);
  if (input.is_undefined()) RaiseTypeError("bad operand type for abs(): 'Undefined'");
  if (!input.is_number()) RaiseTypeError("bad operand type for abs(): '" + TypeName(input) + "'");
  if (input.is_float()) return Value::Float(std::fabs(input.real()));
  return input.ToBig().negative() ? Negate(input) : Positive(input);
}

// int(float(value)), or the default where Python can't.
Value IntegerFromFloat(const Value& input, const Value& fallback) {
  const auto number = input.is_string() ? ParseFloat(input.text()) : std::nullopt;
  return number && std::isfinite(*number) ? Truncate(*number) : fallback;
}

Value ToInt(Interpreter&, const Value& input, Args& args) {
  const Arguments given("int", args, {"default", "base"}, 0);
  const Value fallback = given.Or(0, Value::Int(0));
  if (input.is_undefined()) input.undefined().Fail();
  if (input.is_integer()) return Positive(input);
  if (input.is_float()) return std::isnan(input.real()) ? fallback : Truncate(input.real());
  if (!input.is_string()) return fallback;
  const int64_t base = !given.has(1) ? 10 : given[1].is_integer() ? ToIndex(given[1]) : 1;
  if (base == 0 || (base >= 2 && base <= 36)) {
    try {
      if (auto value = ParseInteger(input.text(), static_cast<int>(base))) return *std::move(value);
    } catch (const Exception& problem) {
      if (problem.type != "ValueError") throw;  // too many digits
    }
  }
  return IntegerFromFloat(input, fallback);
}

Value ToFloat(Interpreter&, const Value& input, Args& args) {
  const Arguments given("float", args, {"default"}, 0);
  if (input.is_undefined()) input.undefined().Fail();
  if (input.is_number()) return Value::Float(input.ToDouble());
  const auto number = input.is_string() ? ParseFloat(input.text()) : std::nullopt;
  return number ? Value::Float(*number) : given.Or(0, Value::Float(0));
}

Value Round(Interpreter&, const Value& input, Args& args) {
  const Arguments given("round", args, {"precision", "method"}, 0);
  const std::string method = given.has(1) ? ToStr(given[1]).text : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    RaiseFilterArgument("method must be common, ceil or floor");
  }
  const Value precision = given.Or(0, Value::Int(0));
  if (method == "common") {
    if (!input.is_number())
      RaiseTypeError("type " + TypeName(input) + " doesn't define __round__ method");
    if (precision.is_none())
      return input.is_float() ? Truncate(std::nearbyint(input.real())) : Positive(input);
    return RoundNumber(input, ToIndex(precision));
  }
  const Value power = Binary(BinaryOp::kPower, Value::Int(10), precision);
  const Value scaled = Binary(BinaryOp::kMultiply, input, power);
  if (!scaled.is_number()) RaiseTypeError("must be real number, not " + TypeName(scaled));
  Value whole = scaled;
  if (scaled.is_float()) {
    whole = Truncate(method == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real()));
  }
  return Binary(BinaryOp::kDivide, whole, power);
}

Value FileSizeFormat(Interpreter& interpreter, const Value& input, Args& args) {
  const Arguments given("filesizeformat", args, {"binary"}, 0);
  const bool binary = given.Flag(0, false);
  double bytes = 0;
  if (input.is_string()) {
    const auto parsed = ParseFloat(input.text());
    if (!parsed) RaiseValueError("could not convert string to float: " + Repr(input).text);
    bytes = *parsed;
  } else {
    if (!input.is_number() && !input.is_undefined()) {
      RaiseTypeError("float() argument must be a string or a real number, not '" + TypeName(input) +
                     "'");
    }
    Args none;
    bytes = ToFloat(interpreter, input, none).real();
  }
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return Value::String(ToStr(Truncate(bytes)).text + " Bytes");
  static constexpr const char* kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  static constexpr const char* kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  double unit = base;
  size_t prefix = 0;
  do {
    unit *= base;
  } while (!(bytes < unit) && ++prefix < 8);
  if (prefix == 8) --prefix;
  FormatSpec spec;
  spec.precision = 1;
  spec.type = 'f';
  const std::string number = FormatNumber(
      Value::Float(base * bytes / std::pow(base, static_cast<double>(prefix) + 2)), spec);
  return Value::String(number + " " + (binary ? kBinary : kDecimal)[prefix]);
}

constexpr FilterEntry kNumberFilters[] = {
    {"abs", Abs},
    {"int", ToInt},
    {"float", ToFloat},
    {"round", Round},
    {"filesizeformat", FileSizeFormat},
};

}  // namespace

std::span<const FilterEntry> NumberFilters() { return kNumberFilters; }

}  // namespace moewe::text::jinja
