// The methods of strings.
#include <algorithm>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/budget.h"
#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/str_ops.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// Results of Markup are Markup; plain arguments are escaped before they get into it.
Value Like(const Value& self, Str text) {
  text.safe = self.str().safe;
  return Value::String(std::move(text));
}
Str Inserted(const Value& self, const Str& argument) {
  return self.str().safe && !argument.safe ? EscapeHtml(argument) : argument;
}
Value StringList(const Value& self, std::vector<Str> parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (Str& part : parts) values.push_back(Like(self, std::move(part)));
  return Value::List(std::move(values));
}

template <Ends kEnds>
Value StripMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("strip", args, {"/chars"}, 0);
  if (!given.has(0) || given[0].is_none()) return Like(self, Strip(self.str(), kEnds));
  if (!given[0].is_string()) RaiseTypeError("strip arg must be None or str");
  return Like(self, Strip(self.str(), kEnds, &given[0].text()));
}

// None or a string.
const std::string* Separator(const Arguments& given, size_t i) {
  if (!given.has(i) || given[i].is_none()) return nullptr;
  if (!given[i].is_string()) RaiseTypeError("must be str or None, not " + TypeName(given[i]));
  return &given[i].text();
}

Value SplitMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("split", args, {"sep", "maxsplit"}, 0);
  return StringList(self, Split(self.str(), Separator(given, 0), given.Integer(1, -1)));
}
Value RsplitMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("rsplit", args, {"sep", "maxsplit"}, 0);
  return StringList(self, SplitFromRight(self.str(), Separator(given, 0), given.Integer(1, -1)));
}
Value SplitlinesMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("splitlines", args, {"keepends"}, 0);
  return StringList(self, SplitLines(self.str(), given.Integer(0, 0) != 0));
}

Value PartitionAt(const Value& self, size_t found, size_t length, bool from_left) {
  const Str& str = self.str();
  std::vector<Value> parts;
  if (found == std::string::npos) {
    parts = {Value::String(""), Value::String(""), Value::String("")};
    parts[from_left ? 0 : 2] = self;
  } else {
    for (const auto& [begin, end] : {std::pair{size_t{0}, found}, std::pair{found, found + length},
                                     std::pair{found + length, str.text.size()}}) {
      parts.push_back(Like(self, str.Substr(begin, end)));
    }
  }
  return Value::Tuple(std::move(parts));
}
Value PartitionMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("partition", args, {"/sep"}, 1);
  const std::string& separator = given.Text(0).text;
  if (separator.empty()) RaiseValueError("empty separator");
  return PartitionAt(self, Find(self.text(), separator), separator.size(), true);
}
Value RpartitionMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("rpartition", args, {"/sep"}, 1);
  const std::string& separator = given.Text(0).text;
  if (separator.empty()) RaiseValueError("empty separator");
  return PartitionAt(self, FindLast(self.text(), separator), separator.size(), false);
}

Value ReplaceMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("replace", args, {"/old", "/new", "/count"}, 2);
  return Like(self, Replace(self.str(), given.Text(0).text, Inserted(self, given.Text(1)),
                            given.Integer(2, -1)));
}

// The part of a string that `start` and `end` arguments mean, in bytes.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  bool valid = true;  // begin <= end
};
Window WindowOf(const std::string& text, const Arguments& given, size_t first) {
  Window window{0, text.size(), true};
  const auto is_given = [&](size_t i) { return given.has(i) && !given[i].is_none(); };
  if (!is_given(first) && !is_given(first + 1)) return window;
  Budget::SpendBytes(text.size());
  const auto length = static_cast<int64_t>(CountCodePoints(text));
  const auto clamp = [&](size_t i, int64_t fallback) {
    if (!is_given(i)) return fallback;
    const int64_t index = ToIndex(given[i]);
    return index < 0 ? std::max<int64_t>(0, index < -length ? 0 : index + length) : index;
  };
  const int64_t begin = clamp(first, 0);
  const int64_t end = std::min(clamp(first + 1, length), length);
  window.valid = begin <= end;
  window.begin = OffsetOfCodePoint(text, static_cast<size_t>(std::min(begin, length)));
  window.end = OffsetOfCodePoint(text, static_cast<size_t>(end));
  return window;
}

template <bool kAtEnd>
Value StartsOrEndsWith(Interpreter&, const Value& self, Args& args) {
  const char* name = kAtEnd ? "endswith" : "startswith";
  const Arguments given(name, args, {"/prefix", "/start", "/end"}, 1);
  const Window window = WindowOf(self.text(), given, 1);
  const auto matches = [&](const Value& part) {
    if (!part.is_string()) {
      RaiseTypeError(std::string(name) + " first arg must be str or a tuple of str, not " +
                     TypeName(part));
    }
    if (!window.valid) return false;
    const std::string_view text =
        std::string_view(self.text()).substr(window.begin, window.end - window.begin);
    return kAtEnd ? text.ends_with(part.text()) : text.starts_with(part.text());
  };
  if (!given[0].is_tuple()) return Value::Bool(matches(given[0]));
  const auto& parts = given[0].items();
  return Value::Bool(std::any_of(parts.begin(), parts.end(), matches));
}

// find, rfind, index, rindex: the code point index, or -1.
int64_t Search(const Value& self, const Arguments& given, bool last) {
  const Window window = WindowOf(self.text(), given, 1);
  const std::string& part = given.Text(0).text;
  if (!window.valid) return -1;
  const std::string_view text =
      std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  const size_t found = last ? FindLast(text, part) : Find(text, part);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(
      CountCodePoints(std::string_view(self.text()).substr(0, window.begin + found)));
}
template <bool kLast, bool kMustExist>
Value FindMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("find", args, {"/sub", "/start", "/end"}, 1);
  const int64_t index = Search(self, given, kLast);
  if (kMustExist && index < 0) RaiseValueError("substring not found");
  return Value::Int(index);
}

Value CountMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("count", args, {"/sub", "/start", "/end"}, 1);
  const Window window = WindowOf(self.text(), given, 1);
  const std::string& part = given.Text(0).text;
  if (!window.valid) return Value::Int(0);
  const std::string_view text =
      std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  if (part.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(text)) + 1);
  int64_t count = 0;
  for (size_t pos = Find(text, part); pos != std::string_view::npos;
       pos = Find(text, part, pos + part.size())) {
    ++count;
  }
  return Value::Int(count);
}

template <std::string (*kMap)(std::string_view)>
Value CaseMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("case", args, {}, 0);
  Budget::SpendBytes(self.text().size() * 2);
  return Like(self, self.str().Derived(kMap(self.text())));
}

// All characters satisfy the predicate, and there is one.
template <bool (*kPredicate)(char32_t)>
Value AllMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("is", args, {}, 0);
  const std::string& text = self.text();
  Budget::SpendBytes(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (!kPredicate(NextCodePoint(text, pos))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}
Value IsAsciiMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("is", args, {}, 0);
  return Value::Bool(IsAscii(self.text()));
}
Value IsPrintableMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("is", args, {}, 0);
  const std::string& text = self.text();
  for (size_t pos = 0; pos < text.size();) {
    if (!IsPrintable(NextCodePoint(text, pos))) return Value::Bool(false);
  }
  return Value::Bool(true);
}
Value IsIdentifierMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("is", args, {}, 0);
  const std::string& text = self.text();
  size_t pos = 0;
  if (text.empty() || !IsIdentifierStart(NextCodePoint(text, pos))) return Value::Bool(false);
  while (pos < text.size()) {
    if (!IsIdentifierPart(NextCodePoint(text, pos))) return Value::Bool(false);
  }
  return Value::Bool(true);
}
template <bool kUpper>
Value IsCaseMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("is", args, {}, 0);
  const std::string& text = self.text();
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (IsTitle(c) || (kUpper ? IsLower(c) : IsUpper(c))) return Value::Bool(false);
    found = found || (kUpper ? IsUpper(c) : IsLower(c));
  }
  return Value::Bool(found);
}
Value IsTitleMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("is", args, {}, 0);
  const std::string& text = self.text();
  bool inside = false;
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (IsUpper(c) || IsTitle(c)) {
      if (inside) return Value::Bool(false);
      inside = found = true;
    } else if (IsLower(c)) {
      if (!inside) return Value::Bool(false);
      found = true;
    } else {
      inside = false;
    }
  }
  return Value::Bool(found);
}

template <char kAlign>
Value PadMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("ljust", args, {"/width", "/fillchar"}, 1);
  FormatSpec spec;
  spec.width = static_cast<size_t>(std::clamp<int64_t>(ToIndex(given[0]), 0, kMaxStringBytes + 1));
  if (given.has(1)) {
    spec.fill = given.Text(1).text;
    if (CountCodePoints(spec.fill) != 1)
      RaiseTypeError("The fill character must be exactly one character long");
  }
  const auto length = CountCodePoints(self.text());
  if (kAlign == '^' && length < spec.width) {
    // An odd character goes to the left if the width is odd, too: not as the format specification
    // does it.
    const size_t missing = spec.width - length;
    const size_t left = missing / 2 + (missing & spec.width & 1);
    CheckStringSize(missing * spec.fill.size());
    Str out;
    for (size_t i = 0; i < left; ++i) out.Append(spec.fill);
    out.Append(self.str());
    for (size_t i = left; i < missing; ++i) out.Append(spec.fill);
    return Like(self, std::move(out));
  }
  return Like(self, Pad(self.str(), spec, kAlign));
}

Value ZfillMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("zfill", args, {"/width"}, 1);
  const auto width =
      static_cast<size_t>(std::clamp<int64_t>(ToIndex(given[0]), 0, kMaxStringBytes + 1));
  const std::string& text = self.text();
  const size_t length = CountCodePoints(text);
  if (length >= width) return self;
  CheckStringSize(width);
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  Str out = self.str().Substr(0, sign);
  out.Append(std::string(width - length, '0'));
  out.Append(self.str(), sign, text.size());
  return Like(self, std::move(out));
}

Value ExpandtabsMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("expandtabs", args, {"tabsize"}, 0);
  const int64_t tab = std::min<int64_t>(given.Integer(0, 8), 1 << 20);
  const Str& str = self.str();
  Str out;
  int64_t column = 0;
  for (size_t pos = 0; pos < str.text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(str.text, pos);
    if (c == '\t') {
      const int64_t spaces = tab > 0 ? tab - column % tab : 0;
      CheckStringSize(out.text.size() + static_cast<size_t>(spaces));
      out.Append(std::string(static_cast<size_t>(spaces), ' '));
      column += spaces;
    } else {
      out.Append(str, begin, pos);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return Like(self, std::move(out));
}

Value RemovePrefixMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("removeprefix", args, {"/prefix"}, 1);
  const std::string& prefix = given.Text(0).text;
  if (!self.text().starts_with(prefix)) return self;
  return Like(self, self.str().Substr(prefix.size(), self.text().size()));
}
Value RemoveSuffixMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("removesuffix", args, {"/suffix"}, 1);
  const std::string& suffix = given.Text(0).text;
  if (!self.text().ends_with(suffix)) return self;
  return Like(self, self.str().Substr(0, self.text().size() - suffix.size()));
}

Value JoinMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("join", args, {"/iterable"}, 1);
  if (!Iterable(given[0])) RaiseTypeError("can only join an iterable");
  std::vector<Str> parts;
  for (const Value& item : Iterate(given[0])) {
    if (!item.is_string() && !self.str().safe) {
      RaiseTypeError("sequence item " + std::to_string(parts.size()) + ": expected str instance, " +
                     TypeName(item) + " found");
    }
    parts.push_back(self.str().safe ? Escaped(item) : item.str());
  }
  return Like(self, JoinStrings(parts, self.str()));
}

Value FormatMethod(Interpreter&, const Value& self, Args& args) {
  return Value::String(BraceFormat(self.str(), args));
}
Value FormatMapMethod(Interpreter&, const Value& self, Args& args) {
  const Arguments given("format_map", args, {"/mapping"}, 1);
  if (!given[0].is_dict()) RaiseTypeError("format_map() takes a mapping");
  Args named;
  for (const Dict::Entry& entry : given[0].dict().entries()) {
    if (entry.key.is_string()) named.named.push_back({entry.key.str(), entry.value});
  }
  return Value::String(BraceFormat(self.str(), named));
}

}  // namespace

MethodFunction FindStringMethod(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> kMethods = {
      {"strip", StripMethod<Ends::kBoth>},
      {"lstrip", StripMethod<Ends::kLeft>},
      {"rstrip", StripMethod<Ends::kRight>},
      {"split", SplitMethod},
      {"rsplit", RsplitMethod},
      {"splitlines", SplitlinesMethod},
      {"partition", PartitionMethod},
      {"rpartition", RpartitionMethod},
      {"replace", ReplaceMethod},
      {"startswith", StartsOrEndsWith<false>},
      {"endswith", StartsOrEndsWith<true>},
      {"find", FindMethod<false, false>},
      {"rfind", FindMethod<true, false>},
      {"index", FindMethod<false, true>},
      {"rindex", FindMethod<true, true>},
      {"count", CountMethod},
      {"upper", CaseMethod<Upper>},
      {"lower", CaseMethod<Lower>},
      {"title", CaseMethod<Title>},
      {"capitalize", CaseMethod<Capitalize>},
      {"swapcase", CaseMethod<SwapCase>},
      {"casefold", CaseMethod<CaseFold>},
      {"isalpha", AllMethod<IsAlpha>},
      {"isalnum", AllMethod<IsAlnum>},
      {"isdigit", AllMethod<IsDigit>},
      {"isdecimal", AllMethod<IsDecimal>},
      {"isnumeric", AllMethod<IsNumeric>},
      {"isspace", AllMethod<IsSpace>},
      {"isascii", IsAsciiMethod},
      {"isprintable", IsPrintableMethod},
      {"isidentifier", IsIdentifierMethod},
      {"isupper", IsCaseMethod<true>},
      {"islower", IsCaseMethod<false>},
      {"istitle", IsTitleMethod},
      {"ljust", PadMethod<'<'>},
      {"rjust", PadMethod<'>'>},
      {"center", PadMethod<'^'>},
      {"zfill", ZfillMethod},
      {"expandtabs", ExpandtabsMethod},
      {"removeprefix", RemovePrefixMethod},
      {"removesuffix", RemoveSuffixMethod},
      {"join", JoinMethod},
      {"format", FormatMethod},
      {"format_map", FormatMapMethod},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

}  // namespace moewe::text::jinja
