#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/attributes.h"
#include "text/jinja/budget.h"
#include "text/jinja/numbers.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// repr() with everything outside of ASCII escaped.
Str AsciiRepr(const Value& value) {
  const Str repr = Repr(value);
  std::string out;
  for (size_t pos = 0; pos < repr.text.size();) {
    const char32_t c = NextCodePoint(repr.text, pos);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer),
                  c < 0x100     ? "\\x%02x"
                  : c < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                  static_cast<unsigned>(c));
    out += buffer;
  }
  return repr.Derived(std::move(out));
}

// `'...' % values`.
class PercentFormatter {
 public:
  PercentFormatter(const Str& format, const Value& values) : format_(format), values_(values) {}

  Str Run() {
    const std::string& f = format_.text;
    while (pos_ < f.size()) {
      const size_t percent = std::min(f.find('%', pos_), f.size());
      out_.Append(format_, pos_, percent);
      pos_ = percent;
      if (pos_ < f.size()) Field();
    }
    const bool mapping = values_.is_dict() || values_.is_undefined() || values_.is_list() ||
                         (values_.kind() == Kind::kObject && values_.host().HasItems());
    const size_t given = values_.is_tuple() ? values_.items().size() : 1;
    if (!mapping && used_ < given)
      RaiseTypeError("not all arguments converted during string formatting");
    out_.safe = format_.safe;
    return std::move(out_);
  }

 private:
  char Peek() const {
    if (pos_ >= format_.text.size()) RaiseValueError("incomplete format");
    return format_.text[pos_];
  }

  Value NextValue() {
    if (values_.is_tuple()) {
      if (used_ >= values_.items().size()) RaiseTypeError("not enough arguments for format string");
      return values_.items()[used_++];
    }
    if (used_ > 0) RaiseTypeError("not enough arguments for format string");
    ++used_;
    return values_;
  }

  // A number in the format, or `*` for one from the values.
  int64_t Count() {
    if (Peek() == '*') {
      ++pos_;
      const Value count = NextValue();
      if (!count.is_integer()) RaiseTypeError("* wants int");
      return ToIndex(count);
    }
    int64_t count = 0;
    while (IsAsciiDigit(Peek())) {
      count = count * 10 + (format_.text[pos_++] - '0');
      if (count > static_cast<int64_t>(kMaxStringBytes)) RaiseValueError("width too big");
    }
    return count;
  }

  void Field() {
    ++pos_;  // %
    Value value;
    bool has_value = false;
    if (Peek() == '(') {
      size_t depth = 1;
      const size_t begin = ++pos_;
      while (depth > 0) {
        if (pos_ >= format_.text.size()) RaiseValueError("incomplete format key");
        if (format_.text[pos_] == '(') ++depth;
        if (format_.text[pos_] == ')') --depth;
        ++pos_;
      }
      if (!values_.is_dict()) RaiseTypeError("format requires a mapping");
      const std::string key = format_.text.substr(begin, pos_ - 1 - begin);
      const Value* found = values_.dict().Find(key);
      if (found == nullptr) Raise("KeyError", "'" + key + "'");
      value = *found;
      has_value = true;
    }
    FormatSpec spec;
    bool left = false;
    bool zero = false;
    for (bool flags = true; flags;) {
      switch (Peek()) {
        case '-':
          left = true;
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          if (spec.sign == '\0') spec.sign = ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          zero = true;
          break;
        default:
          flags = false;
          continue;
      }
      ++pos_;
    }
    int64_t width = Count();
    if (width < 0) {
      left = true;
      width = -std::max<int64_t>(width, -static_cast<int64_t>(kMaxStringBytes));
    }
    spec.width = static_cast<size_t>(width);
    if (Peek() == '.') {
      ++pos_;
      spec.precision = static_cast<int>(std::clamp<int64_t>(Count(), 0, kMaxStringBytes));
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++pos_;
    const char type = Peek();
    const size_t offset = pos_++;
    if (type == '%') {
      out_.Append("%");
      return;
    }
    if (!has_value) value = NextValue();
    spec.align = left ? '<' : '>';
    if (zero && !left) {
      spec.fill = "0";
      spec.align = '=';
    }
    Convert(value, type, spec, offset);
  }

  void Convert(const Value& value, char type, FormatSpec spec, size_t offset) {
    switch (type) {
      case 's':
        return AppendText(ToStr(value), spec);
      case 'r':
        return AppendText(Repr(value), spec);
      case 'a':
        return AppendText(AsciiRepr(value), spec);
      case 'c': {
        if (value.is_string()) {
          if (CountCodePoints(value.text()) != 1) RaiseTypeError("%c requires int or char");
          spec.precision.reset();
          return AppendText(value.str(), spec);
        }
        if (!value.is_integer()) RaiseTypeError("%c requires int or char");
        const int64_t code = ToIndex(value);
        if (code < 0 || code > 0x10FFFF) Raise("OverflowError", "%c arg not in range(0x110000)");
        return AppendText(Str(ToUtf8(static_cast<char32_t>(code))), spec);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return AppendInteger(value, type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) RaiseTypeError("must be real number, not " + TypeName(value));
        spec.type = type;
        return out_.Append(FormatNumber(Value::Float(value.ToDouble()), spec));
      default:
        break;
    }
    size_t end = offset;
    const char32_t c = NextCodePoint(format_.text, end);
    char code[16];
    std::snprintf(code, sizeof(code), "0x%x", static_cast<unsigned>(c));
    RaiseValueError(
        "unsupported format character '" + format_.text.substr(offset, end - offset) + "' (" +
        code + ") at index " +
        std::to_string(CountCodePoints(std::string_view(format_.text).substr(0, offset))));
  }

  void AppendInteger(const Value& value, char type, FormatSpec spec) {
    Value number = value;
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_number() || (value.is_float() && !decimal)) {
      RaiseTypeError(
          std::string("%") + type + " format: " +
          (decimal ? "a real number is required, not " : "an integer is required, not ") +
          TypeName(value));
    }
    if (value.is_float()) number = Truncate(value.real());
    spec.type = decimal ? 'd' : type;
    if (spec.precision) {
      // At least so many digits.
      const auto digits = static_cast<size_t>(std::exchange(spec.precision, std::nullopt).value());
      FormatSpec inner;
      inner.type = spec.type;
      const bool negative = number.ToBig().negative();
      std::string text = FormatNumber(negative ? Negate(number) : number, inner);
      CheckStringSize(digits);
      if (text.size() < digits) text.insert(0, digits - text.size(), '0');
      std::string prefix = negative ? "-" : spec.sign != '\0' ? std::string(1, spec.sign) : "";
      if (spec.alternate && !decimal) prefix += std::string("0") + type;
      if (spec.align == '=') {
        while (prefix.size() + text.size() < spec.width) text.insert(0, "0");
      }
      out_.Append(Pad(Str(prefix + text), spec, '>'));
      return;
    }
    out_.Append(FormatNumber(number, spec));
  }

  void AppendText(const Str& text, FormatSpec spec) {
    // Zeros do not fill text.
    if (spec.align == '=') {
      spec.align = '>';
      spec.fill = " ";
    }
    Str part =
        spec.precision
            ? text.Substr(0, OffsetOfCodePoint(text.text, static_cast<size_t>(*spec.precision)))
            : text;
    if (format_.safe && !text.safe) part = EscapeHtml(part);
    out_.Append(Pad(part, spec, '>'));
  }

  const Str& format_;
  const Value& values_;
  size_t pos_ = 0;
  size_t used_ = 0;
  Str out_;
};

// `'...'.format(...)`.
class BraceFormatter {
 public:
  explicit BraceFormatter(const Args& args) : args_(args) {}

  Str Run(const Str& format, int depth) {
    if (depth > 2) RaiseValueError("Max string recursion exceeded");
    const std::string& f = format.text;
    Str out;
    for (size_t pos = 0; pos < f.size();) {
      const size_t brace = std::min(f.find_first_of("{}", pos), f.size());
      out.Append(format, pos, brace);
      if (brace >= f.size()) break;
      if (brace + 1 < f.size() && f[brace + 1] == f[brace]) {
        out.Append(format, brace, brace + 1);
        pos = brace + 2;
        continue;
      }
      if (f[brace] == '}') RaiseValueError("Single '}' encountered in format string");
      if (brace + 1 >= f.size()) RaiseValueError("Single '{' encountered in format string");
      pos = Field(format, brace + 1, depth, out);
    }
    return out;
  }

 private:
  // A replacement field whose inside begins at `begin`; returns the position behind it.
  size_t Field(const Str& format, size_t begin, int depth, Str& out) {
    Budget::Spend(1);
    const std::string& f = format.text;
    size_t end = begin;
    int nested = 1;
    size_t bang = std::string::npos;
    size_t colon = std::string::npos;
    bool in_brackets = false;
    for (; end < f.size(); ++end) {
      const char c = f[end];
      const bool in_name = bang == std::string::npos && colon == std::string::npos;
      if (in_name && c == '[') in_brackets = true;
      if (in_name && c == ']') in_brackets = false;
      if (in_brackets) continue;
      if (c == '{') ++nested;
      if (c == '}' && --nested == 0) break;
      if (nested > 1) continue;
      if (c == '!' && in_name) bang = end;
      if (c == ':' && colon == std::string::npos) colon = end;
    }
    if (end >= f.size()) RaiseValueError("expected '}' before end of string");
    const size_t name_end = std::min({bang, colon, end});
    Value value = Lookup(std::string_view(f).substr(begin, name_end - begin));
    if (bang != std::string::npos) {
      const size_t conversion_end = std::min(colon, end);
      if (conversion_end != bang + 2) RaiseValueError("expected ':' after conversion specifier");
      value = Convert(value, f[bang + 1]);
    }
    Str spec;
    if (colon != std::string::npos) spec = Run(format.Substr(colon + 1, end), depth + 1);
    out.Append(FormatValue(value, spec));
    return end + 1;
  }

  static Value Convert(const Value& value, char conversion) {
    switch (conversion) {
      case 's':
        return Value::String(ToStr(value));
      case 'r':
        return Value::String(Repr(value));
      case 'a':
        return Value::String(AsciiRepr(value));
      default:
        RaiseValueError(std::string("Unknown conversion specifier '") + conversion + "'");
    }
  }

  Value Lookup(std::string_view field) {
    size_t pos = std::min(field.find_first_of(".["), field.size());
    Value value = First(field.substr(0, pos), pos < field.size());
    while (pos < field.size()) {
      if (field[pos] == '.') {
        const size_t end = std::min(field.find_first_of(".[", pos + 1), field.size());
        if (end == pos + 1) RaiseValueError("Empty attribute in format string");
        value = GetAttribute(value, field.substr(pos + 1, end - pos - 1));
        pos = end;
      } else if (field[pos] == '[') {
        const size_t close = field.find(']', pos);
        if (close == std::string_view::npos) RaiseValueError("Missing ']' in format string");
        const std::string_view key = field.substr(pos + 1, close - pos - 1);
        if (key.empty()) RaiseValueError("Empty attribute in format string");
        const auto index = AsIndex(key);
        value = GetItem(value, index ? Value::Int(*index) : Value::String(key));
        pos = close + 1;
      } else {
        RaiseValueError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static std::optional<int64_t> AsIndex(std::string_view text) {
    if (text.empty() || text.size() > 17) return std::nullopt;
    int64_t index = 0;
    for (const char c : text) {
      if (!IsAsciiDigit(c)) return std::nullopt;
      index = index * 10 + (c - '0');
    }
    return index;
  }

  Value First(std::string_view name, bool has_rest) {
    std::optional<int64_t> index = AsIndex(name);
    if (name.empty() && has_rest) Raise("KeyError", "''");  // as the sandbox's formatter has it
    if (name.empty()) {
      if (numbering_ == Numbering::kManual) {
        RaiseValueError(
            "cannot switch from manual field specification to automatic field numbering");
      }
      numbering_ = Numbering::kAutomatic;
      index = next_++;
    } else if (index) {
      if (numbering_ == Numbering::kAutomatic) {
        RaiseValueError(
            "cannot switch from automatic field numbering to manual field specification");
      }
      numbering_ = Numbering::kManual;
    }
    if (index) {
      if (*index >= static_cast<int64_t>(args_.positional.size())) {
        Raise("IndexError", "Replacement index " + std::to_string(*index) +
                                " out of range for positional args tuple");
      }
      return args_.positional[static_cast<size_t>(*index)];
    }
    for (const NamedArg& named : args_.named) {
      if (named.name.text == name) return named.value;
    }
    Raise("KeyError", "'" + std::string(name) + "'");
  }

  enum class Numbering { kNone, kManual, kAutomatic };
  const Args& args_;
  Numbering numbering_ = Numbering::kNone;
  int64_t next_ = 0;
};

}  // namespace

Str PercentFormat(const Str& format, const Value& values) {
  return PercentFormatter(format, values).Run();
}

Str BraceFormat(const Str& format, const Args& args) {
  Str out = BraceFormatter(args).Run(format, 1);
  out.safe = format.safe;
  return out;
}

}  // namespace moewe::text::jinja
