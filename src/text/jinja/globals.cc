// The names that every template knows: those of Jinja's sandbox and those that transformers adds.
#include <algorithm>
#include <ctime>
#include <map>

#include "text/jinja/arguments.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;

Value MakeRange(Interpreter&, Args& args) {
  if (!args.named.empty()) RaiseTypeError("range() takes no keyword arguments");
  const auto& given = args.positional;
  if (given.empty()) RaiseTypeError("range expected at least 1 argument, got 0");
  if (given.size() > 3) {
    RaiseTypeError("range expected at most 3 arguments, got " + std::to_string(given.size()));
  }
  const int64_t start = given.size() > 1 ? ToIndex(given[0]) : 0;
  const int64_t stop = ToIndex(given[given.size() > 1 ? 1 : 0]);
  const int64_t step = given.size() > 2 ? ToIndex(given[2]) : 1;
  if (step == 0) RaiseValueError("range() arg 3 must not be zero");
  auto range = std::make_shared<Range>(start, stop, step);
  if (range->length() > kMaxRange || range->length() < 0) {
    Raise("OverflowError",
          "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  return Value::Host(std::move(range));
}

// dict(mapping or pairs, key=value...), also what namespace() takes.
Dict DictFrom(const Args& args, const char* function) {
  Dict dict;
  if (args.positional.size() > 1) {
    RaiseTypeError(std::string(function) + " expected at most 1 argument, got " +
                   std::to_string(args.positional.size()));
  }
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    for (const Dict::Entry& entry : args.positional[0].dict().entries())
      dict.Set(entry.key, entry.value);
  } else if (!args.positional.empty()) {
    size_t index = 0;
    for (const Value& pair : Iterate(args.positional[0])) {
      if (!Iterable(pair)) {
        RaiseTypeError("cannot convert dictionary update sequence element #" +
                       std::to_string(index) + " to a sequence");
      }
      const std::vector<Value> parts = Iterate(pair);
      if (parts.size() != 2) {
        RaiseValueError("dictionary update sequence element #" + std::to_string(index) +
                        " has length " + std::to_string(parts.size()) + "; 2 is required");
      }
      dict.Set(parts[0], parts[1]);
      ++index;
    }
  }
  for (const NamedArg& named : args.named) dict.Set(Value::String(named.name), named.value);
  return dict;
}

Value MakeDict(Interpreter&, Args& args) { return Value::Map(DictFrom(args, "dict")); }

Value MakeNamespace(Interpreter& interpreter, Args& args) {
  auto space = std::make_shared<Namespace>(DictFrom(args, "namespace"));
  interpreter.Remember(space);
  return Value::Host(std::move(space));
}

Value MakeCycler(Interpreter&, Args& args) {
  if (!args.named.empty()) RaiseTypeError("Cycler() takes no keyword arguments");
  if (args.positional.empty()) Raise("RuntimeError", "at least one item has to be provided");
  return Value::Host(std::make_shared<Cycler>(args.positional));
}

Value MakeJoiner(Interpreter&, Args& args) {
  const Arguments given("joiner", args, {"sep"}, 0);
  return Value::Host(std::make_shared<Joiner>(given.Or(0, Value::String(", "))));
}

Value RaiseException(Interpreter&, Args& args) {
  const Arguments given("raise_exception", args, {"message"}, 1);
  Raise("TemplateError", ToStr(given[0]).text);
}

// "2026-03-07T09:05:03" to a calendar time; false if it is something else.
bool ParseTime(const std::string& text, std::tm& time) {
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  return end != nullptr && *end == '\0';
}

Value StrftimeNow(Interpreter& interpreter, Args& args) {
  const Arguments given("strftime_now", args, {"format"}, 1);
  const Str& format = given.Text(0);
  std::tm time{};
  if (!ParseTime(interpreter.now(), time)) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &time);
  } else {
    // Fills in the days of the week and of the year.
    std::tm copy = time;
    timegm(&copy);
    time.tm_wday = copy.tm_wday;
    time.tm_yday = copy.tm_yday;
  }
  // A clock without a zone: %z and %Z are empty, %f are the microseconds, which templates do not
  // see change.
  std::string pattern;
  for (size_t i = 0; i < format.text.size(); ++i) {
    const char next = i + 1 < format.text.size() ? format.text[i + 1] : '\0';
    if (format.text[i] != '%' || next == '\0') {
      pattern += format.text[i];
      continue;
    }
    ++i;
    if (next == 'f') {
      pattern += "000000";
    } else if (next != 'z' && next != 'Z') {
      pattern += {'%', next};
    }
  }
  if (pattern.find('\0') != std::string::npos) RaiseValueError("embedded null character");
  if (pattern.size() > 4096) RaiseValueError("the format is too long");
  if (pattern.empty()) return Value::String("");
  std::string out(pattern.size() * 4 + 256, '\0');
  while (true) {
    // A one-character mark tells an empty result from a buffer that is too small.
    const size_t size = std::strftime(out.data(), out.size(), (pattern + "x").c_str(), &time);
    if (size > 0) return Value::String(format.Derived(out.substr(0, size - 1)));
    if (out.size() > (size_t{1} << 20)) RaiseValueError("the format is too long");
    out.resize(out.size() * 4);
  }
}

template <typename Constructor>
Value Type(const char* name, Constructor constructor) {
  return Value::Host(std::make_shared<TypeObject>(name, constructor));
}

}  // namespace

std::optional<Value> TypeObject::Attribute(std::string_view attribute) const {
  if (name_ != "dict" || attribute != "fromkeys") return std::nullopt;
  return MakeFunction("fromkeys", [](Interpreter&, Args& args) {
    const Arguments given("fromkeys", args, {"/iterable", "/value"}, 1);
    Dict dict;
    for (const Value& key : jinja::Iterate(given[0])) dict.Set(key, given.Or(1, Value()));
    return Value::Map(std::move(dict));
  });
}

const Value* FindGlobal(std::string_view name) {
  static const std::map<std::string_view, Value> kGlobals = {
      {"range", MakeFunction("range", MakeRange)},
      {"dict", Type("dict", MakeDict)},
      {"namespace", Type("jinja2.utils.Namespace", MakeNamespace)},
      {"cycler", Type("jinja2.utils.Cycler", MakeCycler)},
      {"joiner", Type("jinja2.utils.Joiner", MakeJoiner)},
      {"raise_exception", MakeFunction("raise_exception", RaiseException)},
      {"strftime_now", MakeFunction("strftime_now", StrftimeNow)},
  };
  const auto found = kGlobals.find(name);
  return found == kGlobals.end() ? nullptr : &found->second;
}

}  // namespace moewe::text::jinja
