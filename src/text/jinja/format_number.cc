// The format specification and numbers.
#include <cmath>
#include <cstdio>

#include "text/jinja/budget.h"
#include "text/jinja/format.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

constexpr int kMaxPrecision = 1 << 16;

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
size_t ParseCount(std::string_view text, size_t& pos) {
  size_t value = 0;
  while (pos < text.size() && IsAsciiDigit(text[pos])) {
    value = value * 10 + static_cast<size_t>(text[pos++] - '0');
    if (value > kMaxStringBytes) RaiseValueError("Too many decimal digits in format string");
  }
  return value;
}

// Groups the digits before the point.
std::string Group(const std::string& digits, char separator, size_t size) {
  const size_t whole = std::min(
      digits.find_first_not_of(size == 3 ? "0123456789" : "0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string Uppercase(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  }
  return text;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' || sign == ' ' ? std::string(1, sign) : "";
}

// Sign and prefix, digits, padding between or around them.
std::string Assemble(const std::string& prefix, std::string digits, const FormatSpec& spec,
                     size_t group_size) {
  if (spec.grouping != '\0') {
    const std::string plain = digits;
    digits = Group(plain, spec.grouping, group_size);
    // Zeros that fill are grouped as well.
    if (spec.align == '=' && spec.fill == "0") {
      for (size_t zeros = 1; prefix.size() + digits.size() < spec.width; ++zeros) {
        digits = Group(std::string(zeros, '0') + plain, spec.grouping, group_size);
        if (zeros > spec.width) break;
      }
    }
  }
  if (spec.align == '=') {
    CheckStringSize(spec.width * spec.fill.size());
    std::string out = prefix;
    for (size_t n = prefix.size() + digits.size(); n < spec.width; ++n) out += spec.fill;
    return out + digits;
  }
  return Pad(Str(prefix + digits), spec, '>').text;
}

std::string FormatInteger(const Value& number, const FormatSpec& spec) {
  const BigInt value = number.ToBig();
  const bool negative = value.negative();
  if (spec.precision) RaiseValueError("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (spec.sign != '\0') RaiseValueError("Sign not allowed with integer format specifier 'c'");
    const auto code = value.ToInt64();
    if (!code || *code < 0 || *code > 0x10FFFF)
      Raise("OverflowError", "%c arg not in range(0x110000)");
    return Pad(Str(ToUtf8(static_cast<char32_t>(*code))), spec, '>').text;
  }
  const char type = static_cast<char>(spec.type | 0x20);
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' ? 16 : 10;
  std::string digits = (negative ? -value : value).ToString(base);
  std::string prefix = SignOf(negative, spec.sign);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
  if (spec.type == 'X') digits = Uppercase(digits);
  return Assemble(prefix, digits, spec, base == 10 ? 3 : 4);
}

std::string FormatFloat(double value, const FormatSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string digits;
  const int precision = spec.precision.value_or(6);
  switch (spec.type) {
    case '\0':
      if (!spec.precision) {
        digits = FloatRepr(magnitude);
      } else {
        digits = FormatDigits(magnitude, precision, 'g', spec.alternate);
        // Like repr: at least one digit behind the point unless there is an exponent.
        if (digits.find_first_of(".en") == std::string::npos) {
          if (static_cast<int>(digits.size()) >= precision) {
            digits = FormatDigits(magnitude, std::max(precision - 1, 0), 'e', spec.alternate);
            // Trailing zeros of the mantissa go.
            const size_t e = digits.find('e');
            std::string mantissa = digits.substr(0, e);
            if (mantissa.find('.') != std::string::npos) {
              mantissa.erase(mantissa.find_last_not_of('0') + 1);
              if (mantissa.back() == '.') mantissa.pop_back();
            }
            digits = mantissa + digits.substr(e);
          } else {
            digits += ".0";
          }
        }
      }
      break;
    case '%':
      digits = FormatDigits(magnitude * 100, precision, 'f', spec.alternate) + "%";
      break;
    case 'n':
      digits = FormatDigits(magnitude, precision, 'g', spec.alternate);
      break;
    default:
      digits = FormatDigits(magnitude, precision, spec.type, spec.alternate);
      break;
  }
  return Assemble(SignOf(negative, spec.sign), digits, spec, 3);
}

}  // namespace

std::string FormatDigits(double magnitude, int precision, char type, bool alternate) {
  if (precision > kMaxPrecision) RaiseValueError("precision too big");
  const bool upper = type >= 'A' && type <= 'Z';
  if (std::isnan(magnitude)) return upper ? "NAN" : "nan";
  if (std::isinf(magnitude)) return upper ? "INF" : "inf";
  const std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  std::string out(static_cast<size_t>(precision) + 350, '\0');
  Budget::SpendBytes(out.size());
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(out.data(), out.size(), format.c_str(), precision, magnitude);
#pragma GCC diagnostic pop
  out.resize(static_cast<size_t>(size));
  return out;
}

FormatSpec ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  size_t pos = 0;
  bool fill_given = false;
  if (!text.empty()) {
    size_t after = 0;
    NextCodePoint(text, after);
    if (after < text.size() && IsAlign(text[after])) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      fill_given = true;
      pos = after + 1;
    } else if (IsAlign(text[0])) {
      spec.align = text[0];
      pos = 1;
    }
  }
  const auto at = [&](char c) { return pos < text.size() && text[pos] == c; };
  if (at('+') || at('-') || at(' ')) spec.sign = text[pos++];
  if (at('z')) ++pos;
  if (at('#')) {
    spec.alternate = true;
    ++pos;
  }
  if (!fill_given && at('0')) {
    spec.fill = "0";
    if (spec.align == '\0') spec.align = '=';
    ++pos;
  }
  spec.width = ParseCount(text, pos);
  if (at(',') || at('_')) {
    spec.grouping = text[pos++];
    if (at(',') || at('_')) RaiseValueError("Cannot specify both ',' and '_'.");
  }
  if (at('.')) {
    ++pos;
    if (pos >= text.size() || !IsAsciiDigit(text[pos]))
      RaiseValueError("Format specifier missing precision");
    const size_t precision = ParseCount(text, pos);
    spec.precision = static_cast<int>(std::min<size_t>(precision, kMaxStringBytes));
  }
  if (pos < text.size()) {
    if (pos + 1 != text.size()) RaiseValueError("Invalid format specifier");
    spec.type = text[pos];
  }
  return spec;
}

std::string FormatNumber(const Value& number, const FormatSpec& spec) {
  static constexpr std::string_view kIntegerTypes = "bcdoxXn";
  static constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool unknown =
      spec.type != '\0' && kFloatTypes.find(spec.type) == std::string_view::npos &&
      (number.is_float() ? spec.type != 'n'
                         : kIntegerTypes.find(spec.type) == std::string_view::npos);
  if (unknown) {
    RaiseValueError(std::string("Unknown format code '") + spec.type + "' for object of type '" +
                    TypeName(number) + "'");
  }
  if (spec.grouping == ',' &&
      std::string_view("bcoxXn").find(spec.type) != std::string_view::npos && spec.type != '\0') {
    RaiseValueError(std::string("Cannot specify ',' with '") + spec.type + "'.");
  }
  const bool as_float = number.is_float() || (spec.type != '\0' && kFloatTypes.find(spec.type) !=
                                                                       std::string_view::npos);
  return as_float ? FormatFloat(number.ToDouble(), spec) : FormatInteger(number, spec);
}

Str Pad(const Str& text, const FormatSpec& spec, char default_align) {
  const size_t length = CountCodePoints(text.text);
  if (length >= spec.width) return text;
  const size_t missing = spec.width - length;
  CheckStringSize(missing * spec.fill.size());
  const char align = spec.align == '\0' ? default_align : spec.align;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Str out;
  for (size_t i = 0; i < before; ++i) out.Append(spec.fill);
  out.Append(text);
  for (size_t i = before; i < missing; ++i) out.Append(spec.fill);
  return out;
}

Str FormatValue(const Value& value, const Str& spec_text) {
  if (spec_text.text.empty()) return ToStr(value);
  if (value.is_number()) {
    return spec_text.Derived(FormatNumber(value, ParseFormatSpec(spec_text.text)));
  }
  if (!value.is_string()) {
    RaiseTypeError("unsupported format string passed to " + TypeName(value) + ".__format__");
  }
  const FormatSpec spec = ParseFormatSpec(spec_text.text);
  if (spec.type != '\0' && spec.type != 's') {
    RaiseValueError(std::string("Unknown format code '") + spec.type +
                    "' for object of type 'str'");
  }
  if (spec.sign != '\0') RaiseValueError("Sign not allowed in string format specifier");
  if (spec.alternate) RaiseValueError("Alternate form (#) not allowed in string format specifier");
  if (spec.grouping != '\0')
    RaiseValueError(std::string("Cannot specify '") + spec.grouping + "' with 's'.");
  FormatSpec padding = spec;
  if (spec.align == '=') {
    // A leading zero means filling with zeros, which strings take on the right.
    if (spec.fill != "0" || spec_text.text.find('=') != std::string::npos) {
      RaiseValueError("'=' alignment not allowed in string format specifier");
    }
    padding.align = '<';
  }
  Str text = value.str();
  if (spec.precision) {
    text = text.Substr(0, OffsetOfCodePoint(text.text, static_cast<size_t>(*spec.precision)));
  }
  return Pad(text, padding, '<');
}

}  // namespace moewe::text::jinja
