// Filters on text, and those that make text of a value.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/budget.h"
#include "text/jinja/filter_tools.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/str_ops.h"
#include "text/jinja/text_wrap.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// str(value), but Markup stays Markup.
Value SoftString(const Value& value) {
  return value.is_string() ? value : Value::String(ToStr(value));
}

Value Like(const Value& self, Str text) {
  text.safe = self.is_string() && self.str().safe;
  return Value::String(std::move(text));
}

template <std::string (*kMap)(std::string_view)>
Value Case(Interpreter&, const Value& input, Args& args) {
  const Arguments given("case", args, {}, 0);
  const Value text = SoftString(input);
  Budget::SpendBytes(text.text().size() * 2);
  return Like(text, text.str().Derived(kMap(text.text())));
}

// Words begin behind blanks, dashes and opening brackets; unlike str.title, an apostrophe is part
// of a word.
std::string TitleWords(std::string_view text) {
  const auto is_break = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
  };
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const bool separators = is_break(NextCodePoint(text, pos));
    size_t first_end = pos;
    while (pos < text.size()) {
      size_t next = pos;
      if (is_break(NextCodePoint(text, next)) != separators) break;
      pos = next;
    }
    out += Upper(text.substr(begin, first_end - begin));
    out += Lower(text.substr(first_end, pos - first_end));
  }
  return out;
}

Value Trim(Interpreter&, const Value& input, Args& args) {
  const Arguments given("trim", args, {"chars"}, 0);
  const Value text = SoftString(input);
  if (!given.has(0) || given[0].is_none()) return Like(text, Strip(text.str(), Ends::kBoth));
  return Like(text, Strip(text.str(), Ends::kBoth, &given.Text(0).text));
}

Value ReplaceFilter(Interpreter& interpreter, const Value& input, Args& args) {
  const Arguments given("replace", args, {"old", "new", "count"}, 2);
  Str text = ToStr(input);
  Str replacement = ToStr(given[1]);
  const int64_t count = given.has(2) && !given[2].is_none() ? ToIndex(given[2]) : -1;
  if (!interpreter.autoescape()) {
    Str out = Replace(text, ToStr(given[0]).text, replacement, count);
    out.safe = false;
    return Value::String(std::move(out));
  }
  const auto safe = [](const Value& v) { return v.is_string() && v.str().safe; };
  const bool any = safe(input) || safe(given[0]) || safe(given[1]);
  if (any) {
    text = Escaped(input);
    replacement = Escaped(given[1]);
  }
  Str out = Replace(text, ToStr(given[0]).text, replacement, count);
  out.safe = any;
  return Value::String(std::move(out));
}

Value DefaultFilter(Interpreter&, const Value& input, Args& args) {
  const Arguments given("default", args, {"default_value", "boolean"}, 0);
  if (input.is_undefined() || (given.Flag(1, false) && !Truth(input)))
    return given.Or(0, Value::String(""));
  return input;
}

Value StringFilter(Interpreter&, const Value& input, Args& args) {
  const Arguments given("string", args, {}, 0);
  return SoftString(input);
}

Value FormatFilter(Interpreter&, const Value& input, Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    RaiseFilterArgument("can't handle positional and keyword arguments at the same time");
  }
  Value values = Value::Tuple(args.positional);
  if (!args.named.empty()) {
    Dict named;
    for (const NamedArg& arg : args.named) named.Set(Value::String(arg.name), arg.value);
    values = Value::Map(std::move(named));
  }
  return Value::String(PercentFormat(SoftString(input).str(), values));
}

Value CenterFilter(Interpreter& interpreter, const Value& input, Args& args) {
  const Arguments given("center", args, {"width"}, 0);
  Args width;
  width.positional.push_back(given.Or(0, Value::Int(80)));
  return FindStringMethod("center")(interpreter, SoftString(input), width);
}

Value Indent(Interpreter&, const Value& input, Args& args) {
  const Arguments given("indent", args, {"width", "first", "blank"}, 0);
  Str indention;
  if (given.has(0) && given[0].is_string()) {
    indention = given[0].str();
  } else {
    const int64_t width = std::max<int64_t>(0, given.Integer(0, 4));
    CheckStringSize(static_cast<size_t>(width));
    indention.Append(std::string(static_cast<size_t>(width), ' '));
  }
  if (input.is_undefined()) input.undefined().Fail();
  if (input.is_list()) Raise("AttributeError", "'list' object has no attribute 'splitlines'");
  if (!input.is_string()) {
    RaiseTypeError("unsupported operand type(s) for +=: '" + TypeName(input) + "' and 'str'");
  }
  Str text = input.str();
  text.Append("\n");
  const bool blank = given.Flag(2, false);
  const std::vector<Str> lines = SplitLines(text, false);
  Str out;
  if (given.Flag(1, false)) out.Append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    if (i > 0 && (blank || !lines[i].text.empty())) out.Append(indention);
    out.Append(lines[i]);
  }
  return Like(input, std::move(out));
}

Value TruncateFilter(Interpreter&, const Value& input, Args& args) {
  const Arguments given("truncate", args, {"length", "killwords", "end", "leeway"}, 0);
  const int64_t length = given.Integer(0, 255);
  const Str end = given.has(2) ? given.Text(2) : Str("...");
  const int64_t leeway = given.has(3) && !given[3].is_none() ? ToIndex(given[3]) : 5;
  const auto end_length = static_cast<int64_t>(CountCodePoints(end.text));
  if (length < end_length) {
    Raise("AssertionError",
          "expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  }
  if (leeway < 0) Raise("AssertionError", "expected leeway >= 0, got " + std::to_string(leeway));
  if (Length(input) <= length + leeway) return input;
  const Value cut = GetSlice(input, Value(), Value::Int(length - end_length), Value());
  if (!cut.is_string()) return Binary(BinaryOp::kAdd, cut, Value::String(end));
  Str out = cut.str();
  if (!given.Flag(1, false)) {
    const size_t blank = out.text.rfind(' ');
    if (blank != std::string::npos) out = out.Substr(0, blank);
  }
  out.Append(end);
  return Like(input, std::move(out));
}

Value WordCount(Interpreter&, const Value& input, Args& args) {
  const Arguments given("wordcount", args, {}, 0);
  const std::string text = ToStr(input).text;
  int64_t count = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const bool word = IsWordChar(NextCodePoint(text, pos));
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::Int(count);
}

Value WordWrap(Interpreter&, const Value& input, Args& args) {
  const Arguments given("wordwrap", args,
                        {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0);
  if (input.is_undefined()) input.undefined().Fail();
  if (!input.is_string()) {
    Raise("AttributeError", "'" + TypeName(input) + "' object has no attribute 'splitlines'");
  }
  const int64_t width = given.Integer(0, 79);
  if (width <= 0) RaiseValueError("invalid width " + std::to_string(width) + " (must be > 0)");
  const Str wrap = given.has(2) && !given[2].is_none() ? given.Text(2) : Str("\n");
  std::vector<Str> lines;
  for (const Str& line : SplitLines(input.str(), false)) {
    lines.push_back(JoinStrings(
        WrapLine(line, static_cast<size_t>(width), given.Flag(1, true), given.Flag(3, true)),
        wrap));
  }
  return Value::String(JoinStrings(lines, wrap));
}

Value ToJsonFilter(Interpreter&, const Value& input, Args& args) {
  const Arguments given("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = given.Flag(0, false);
  style.sort_keys = given.Flag(3, false);
  if (given.has(1) && !given[1].is_none()) {
    if (given[1].is_string()) {
      style.indent = given[1].str();
    } else {
      const auto width = static_cast<size_t>(std::clamp<int64_t>(ToIndex(given[1]), 0, 10000));
      style.indent = Str(std::string(width, ' '));
    }
    style.item_separator = Str(",");
  }
  if (given.has(2) && !given[2].is_none()) {
    const std::vector<Value> separators = Iterate(given[2]);
    if (separators.size() != 2) RaiseValueError("too many values to unpack (expected 2)");
    style.item_separator = ToStr(separators[0]);
    style.key_separator = ToStr(separators[1]);
  }
  return Value::String(ToJson(input, style));
}

Value PrettyPrint(Interpreter&, const Value& input, Args& args) {
  const Arguments given("pprint", args, {}, 0);
  return Value::String(PrettyRepr(input));
}

constexpr FilterEntry kTextFilters[] = {
    {"upper", Case<Upper>},       {"lower", Case<Lower>},   {"capitalize", Case<Capitalize>},
    {"title", Case<TitleWords>},  {"trim", Trim},           {"replace", ReplaceFilter},
    {"default", DefaultFilter},   {"d", DefaultFilter},     {"string", StringFilter},
    {"format", FormatFilter},     {"center", CenterFilter}, {"indent", Indent},
    {"truncate", TruncateFilter}, {"wordcount", WordCount}, {"wordwrap", WordWrap},
    {"tojson", ToJsonFilter},     {"pprint", PrettyPrint},
};

}  // namespace

std::span<const FilterEntry> TextFilters() { return kTextFilters; }

}  // namespace moewe::text::jinja
