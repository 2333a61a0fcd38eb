// Filters for HTML and URLs.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/str_ops.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

Value Escape(Interpreter&, const Value& input, Args& args) {
  const Arguments given("escape", args, {}, 0);
  return Value::String(Escaped(input));
}

Value ForceEscape(Interpreter&, const Value& input, Args& args) {
  const Arguments given("forceescape", args, {}, 0);
  return Value::String(EscapeHtml(ToStr(input)));
}

Value Safe(Interpreter&, const Value& input, Args& args) {
  const Arguments given("safe", args, {}, 0);
  Str text = ToStr(input);
  text.safe = true;
  return Value::String(std::move(text));
}

void AppendQuoted(Str& out, const Value& value, bool query) {
  const Str text = ToStr(value);
  std::string quoted;
  for (const char c : text.text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    if (plain) {
      quoted += c;
    } else if (c == ' ' && query) {
      quoted += '+';
    } else {
      const auto byte = static_cast<unsigned char>(c);
      quoted += '%';
      quoted += "0123456789ABCDEF"[byte >> 4];
      quoted += "0123456789ABCDEF"[byte & 15];
    }
  }
  out.Append(quoted, text.from_message());
}

Value UrlEncode(Interpreter&, const Value& input, Args& args) {
  const Arguments given("urlencode", args, {}, 0);
  Str out;
  if (input.is_string() || !Iterable(input)) {
    AppendQuoted(out, input, false);
    return Value::String(std::move(out));
  }
  const std::vector<Value> pairs =
      input.is_dict() ? DictView(input, DictView::Part::kItems).Iterate() : Iterate(input);
  bool first = true;
  for (const Value& pair : pairs) {
    const std::vector<Value> parts = Iterate(pair);
    if (parts.size() != 2) {
      RaiseValueError(parts.size() > 2 ? "too many values to unpack (expected 2)"
                                       : "not enough values to unpack (expected 2, got " +
                                             std::to_string(parts.size()) + ")");
    }
    if (!first) out.Append("&");
    first = false;
    AppendQuoted(out, parts[0], true);
    out.Append("=");
    AppendQuoted(out, parts[1], true);
  }
  return Value::String(std::move(out));
}

Value XmlAttr(Interpreter& interpreter, const Value& input, Args& args) {
  const Arguments given("xmlattr", args, {"autospace"}, 0);
  if (input.is_undefined()) input.undefined().Fail();
  if (!input.is_dict())
    Raise("AttributeError", "'" + TypeName(input) + "' object has no attribute 'items'");
  Str out;
  for (const Dict::Entry& entry : input.dict().entries()) {
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    const std::string key = ToStr(entry.key).text;
    for (size_t pos = 0; pos < key.size();) {
      const char32_t c = NextCodePoint(key, pos);
      if (IsSpace(c) || c == '/' || c == '>' || c == '=') {
        RaiseValueError("Invalid character in attribute name: " + Repr(entry.key).text);
      }
    }
    if (!out.text.empty()) out.Append(" ");
    out.Append(Escaped(entry.key));
    out.Append("=\"");
    out.Append(Escaped(entry.value));
    out.Append("\"");
  }
  if (given.Flag(0, true) && !out.text.empty()) {
    Str spaced(" ");
    spaced.Append(out);
    out = std::move(spaced);
  }
  out.safe = interpreter.autoescape();
  return Value::String(std::move(out));
}

// The character that an entity stands for, or nothing.
std::string EntityText(std::string_view name) {
  if (name.starts_with("#")) {
    const bool hex = name.size() > 1 && (name[1] | 0x20) == 'x';
    char32_t code = 0;
    const std::string_view digits = name.substr(hex ? 2 : 1);
    if (digits.empty() || digits.size() > 7) return "";
    for (const char c : digits) {
      const int digit = c >= '0' && c <= '9'                            ? c - '0'
                        : hex && (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                        : -1;
      if (digit < 0) return "";
      code = code * (hex ? 16 : 10) + static_cast<char32_t>(digit);
    }
    return code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? "\uFFFD"
                                                                             : ToUtf8(code);
  }
  static constexpr std::pair<std::string_view, const char*> kNamed[] = {
      {"amp", "&"},         {"lt", "<"},         {"gt", ">"},         {"quot", "\""},
      {"apos", "'"},        {"nbsp", "\u00a0"},  {"copy", "\u00a9"},  {"reg", "\u00ae"},
      {"hellip", "\u2026"}, {"mdash", "\u2014"}, {"ndash", "\u2013"}, {"lsquo", "\u2018"},
      {"rsquo", "\u2019"},  {"ldquo", "\u201c"}, {"rdquo", "\u201d"}};
  for (const auto& [known, text] : kNamed) {
    if (known == name) return text;
  }
  return "";
}

std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t semicolon = text[pos] == '&' ? text.find(';', pos) : std::string::npos;
    const std::string entity =
        semicolon != std::string::npos && semicolon - pos <= 10
            ? EntityText(std::string_view(text).substr(pos + 1, semicolon - pos - 1))
            : "";
    if (entity.empty()) {
      out += text[pos++];
    } else {
      out += entity;
      pos = semicolon + 1;
    }
  }
  return out;
}

// Cuts everything from `open` to the next `close`, as long as there is one.
std::string CutBetween(const std::string& text, std::string_view open, std::string_view close) {
  std::string out;
  size_t pos = 0;
  while (true) {
    const size_t begin = Find(text, open, pos);
    const size_t end = begin == std::string::npos ? begin : Find(text, close, begin + open.size());
    if (end == std::string::npos) return out + text.substr(pos);
    out += text.substr(pos, begin - pos);
    pos = end + close.size();
  }
}

Value StripTags(Interpreter&, const Value& input, Args& args) {
  const Arguments given("striptags", args, {}, 0);
  const Str text = ToStr(input);
  std::string plain = CutBetween(CutBetween(text.text, "<!--", "-->"), "<", ">");
  const Str words = JoinStrings(Split(Str(std::move(plain)), nullptr, -1), Str(" "));
  return Value::String(text.Derived(Unescape(words.text)));
}

constexpr FilterEntry kHtmlFilters[] = {
    {"escape", Escape},       {"e", Escape},        {"forceescape", ForceEscape}, {"safe", Safe},
    {"urlencode", UrlEncode}, {"xmlattr", XmlAttr}, {"striptags", StripTags},
};

}  // namespace

std::span<const FilterEntry> HtmlFilters() { return kHtmlFilters; }

}  // namespace moewe::text::jinja
