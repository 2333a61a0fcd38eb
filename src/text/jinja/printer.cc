#include "text/jinja/printer.h"

#include <charconv>
#include <cmath>

#include "text/jinja/budget.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

void AppendHex(std::string& out, char32_t value, int digits) {
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(value >> shift) & 15];
  }
}

void AppendStringRepr(Str& out, const Str& str) {
  const std::string& text = str.text;
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  Budget::SpendBytes(text.size());
  out.Append(std::string_view(&quote, 1));
  size_t copied = 0;  // everything before this position is in `out`
  const auto flush = [&](size_t until) { out.Append(str, copied, until); };
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, pos);
    std::string escaped;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      escaped = {'\\', static_cast<char>(c)};
    } else if (c == '\n') {
      escaped = "\\n";
    } else if (c == '\r') {
      escaped = "\\r";
    } else if (c == '\t') {
      escaped = "\\t";
    } else if (!IsPrintable(c)) {
      escaped = c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      AppendHex(escaped, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    } else {
      continue;
    }
    flush(begin);
    out.Append(escaped, str.from_message());
    copied = pos;
  }
  flush(text.size());
  out.Append(std::string_view(&quote, 1));
}

void AppendRepr(Str& out, const Value& value);

void AppendItems(Str& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.Append(", ");
    first = false;
    AppendRepr(out, item);
  }
}

void AppendRepr(Str& out, const Value& value) {
  const DepthGuard depth;
  Budget::Spend(1);
  switch (value.kind()) {
    case Kind::kUndefined:
      out.Append("Undefined");
      return;
    case Kind::kNone:
      out.Append("None");
      return;
    case Kind::kBool:
      out.Append(value.boolean() ? "True" : "False");
      return;
    case Kind::kInt:
      out.Append(std::to_string(value.small_int()));
      return;
    case Kind::kBigInt:
      out.Append(value.big().ToString());
      return;
    case Kind::kFloat:
      out.Append(FloatRepr(value.real()));
      return;
    case Kind::kString:
      if (value.str().safe) out.Append("Markup(");
      AppendStringRepr(out, value.str());
      if (value.str().safe) out.Append(")");
      return;
    case Kind::kList:
      out.Append("[");
      AppendItems(out, value.items());
      out.Append("]");
      return;
    case Kind::kTuple:
      out.Append("(");
      AppendItems(out, value.items());
      out.Append(value.items().size() == 1 ? ",)" : ")");
      return;
    case Kind::kDict: {
      out.Append("{");
      bool first = true;
      for (const Dict::Entry& entry : value.dict().entries()) {
        if (!first) out.Append(", ");
        first = false;
        AppendRepr(out, entry.key);
        out.Append(": ");
        AppendRepr(out, entry.value);
      }
      out.Append("}");
      return;
    }
    case Kind::kObject:
      out.Append(value.host().Repr());
      return;
  }
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the same value, then Python's choice between the two
  // notations.
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  std::string digits;
  for (const char c : scientific.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = std::signbit(value) ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    const int magnitude = std::abs(exponent);
    out += exponent < 0 ? "e-" : "e+";
    if (magnitude < 10) out += '0';
    return out + std::to_string(magnitude);
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void AppendStr(Str& out, const Value& value) {
  if (value.is_string()) {
    Budget::SpendBytes(value.text().size());
    out.Append(value.str());
  } else if (!value.is_undefined()) {
    AppendRepr(out, value);
  }
}

Str ToStr(const Value& value) {
  Str out;
  AppendStr(out, value);
  return out;
}

Str Repr(const Value& value) {
  Str out;
  AppendRepr(out, value);
  return out;
}

Str EscapeHtml(const Str& str) {
  Str out;
  size_t copied = 0;
  for (size_t pos = 0; pos < str.text.size(); ++pos) {
    const char* entity = nullptr;
    switch (str.text[pos]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '"':
        entity = "&#34;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      default:
        continue;
    }
    out.Append(str, copied, pos);
    out.Append(entity, str.from_message());
    copied = pos + 1;
  }
  out.Append(str, copied, str.text.size());
  out.safe = true;
  return out;
}

Str Escaped(const Value& value) {
  if (value.is_string() && value.str().safe) return value.str();
  return EscapeHtml(ToStr(value));
}

}  // namespace moewe::text::jinja
