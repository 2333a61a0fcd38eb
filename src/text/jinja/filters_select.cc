// map, select, reject and their kin, and attr.
#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/filter_tools.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"

namespace moewe::text::jinja {
namespace {

std::string NameOf(const Value& value, const char* what) {
  if (value.is_string()) return value.text();
  Raise("TemplateRuntimeError", std::string("No ") + what + " named " + Repr(value).text + ".");
}

Value Map(Interpreter& interpreter, const Value& input, Args& args) {
  if (!Truth(input)) return Generator({});
  std::vector<Value> out;
  if (args.positional.empty() && !args.named.empty()) {
    const Value* attribute = nullptr;
    const Value* fallback = nullptr;
    for (const NamedArg& named : args.named) {
      if (named.name.text == "attribute") attribute = &named.value;
      if (named.name.text == "default" && !named.value.is_none()) fallback = &named.value;
    }
    if (attribute != nullptr) {
      for (const NamedArg& named : args.named) {
        if (named.name.text != "attribute" && named.name.text != "default") {
          RaiseFilterArgument("Unexpected keyword argument '" + named.name.text + "'");
        }
      }
      const AttributeGetter getter(*attribute, fallback);
      for (const Value& item : Iterate(input)) out.push_back(getter.Get(item));
      return Generator(std::move(out));
    }
  }
  if (args.positional.empty()) RaiseFilterArgument("map requires a filter argument");
  const std::string name = NameOf(args.positional[0], "filter");
  args.positional.erase(args.positional.begin());
  for (const Value& item : Iterate(input)) out.push_back(interpreter.ApplyFilter(name, item, args));
  return Generator(std::move(out));
}

Value Choose(Interpreter& interpreter, const Value& input, Args& args, bool wanted,
             bool by_attribute) {
  if (!Truth(input)) return Generator({});
  size_t used = 0;
  Value attribute;
  if (by_attribute) {
    if (args.positional.empty()) RaiseFilterArgument("Missing parameter for attribute name");
    attribute = args.positional[used++];
  }
  const AttributeGetter getter(attribute);
  std::string test;
  const bool has_test = used < args.positional.size();
  if (has_test) test = NameOf(args.positional[used++], "test");
  args.positional.erase(args.positional.begin(),
                        args.positional.begin() + static_cast<std::ptrdiff_t>(used));
  std::vector<Value> out;
  for (Value& item : Iterate(input)) {
    const Value subject = getter.Get(item);
    const bool holds = has_test ? interpreter.ApplyTest(test, subject, args) : Truth(subject);
    if (holds == wanted) out.push_back(std::move(item));
  }
  return Generator(std::move(out));
}

Value Select(Interpreter& i, const Value& input, Args& args) {
  return Choose(i, input, args, true, false);
}
Value Reject(Interpreter& i, const Value& input, Args& args) {
  return Choose(i, input, args, false, false);
}
Value SelectAttr(Interpreter& i, const Value& input, Args& args) {
  return Choose(i, input, args, true, true);
}
Value RejectAttr(Interpreter& i, const Value& input, Args& args) {
  return Choose(i, input, args, false, true);
}

Value Attr(Interpreter&, const Value& input, Args& args) {
  const Arguments given("attr", args, {"name"}, 1);
  if (!given[0].is_string()) {
    RaiseTypeError("attribute name must be string, not '" + TypeName(given[0]) + "'");
  }
  const std::string name = given[0].text();
  if (input.is_undefined()) input.undefined().Fail();
  if (auto attribute = FindAttribute(input, name)) return *std::move(attribute);
  UndefinedInfo info;
  info.name = name;
  info.owner = OwnerName(input);
  return Value::Undefined(std::move(info));
}

constexpr FilterEntry kSelectFilters[] = {
    {"map", Map},
    {"select", Select},
    {"reject", Reject},
    {"selectattr", SelectAttr},
    {"rejectattr", RejectAttr},
    {"attr", Attr},
};

}  // namespace

std::span<const FilterEntry> SelectFilters() { return kSelectFilters; }

}  // namespace moewe::text::jinja
