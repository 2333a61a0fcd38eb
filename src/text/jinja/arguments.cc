#include "text/jinja/arguments.h"

#include "text/jinja/ops.h"

namespace moewe::text::jinja {

Arguments::Arguments(std::string_view function, const Args& args,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : function_(function), given_(parameters.size(), nullptr) {
  const std::string name(function);
  if (args.positional.size() > given_.size()) {
    RaiseTypeError(name + "() takes at most " + std::to_string(given_.size()) + " arguments (" +
                   std::to_string(args.positional.size()) + " given)");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) given_[i] = &args.positional[i];
  for (const NamedArg& named : args.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters.begin()[i] != named.name.text) ++i;
    if (i == parameters.size()) {
      RaiseTypeError(name + "() got an unexpected keyword argument '" + named.name.text + "'");
    }
    if (given_[i] != nullptr) {
      RaiseTypeError(name + "() got multiple values for argument '" + named.name.text + "'");
    }
    given_[i] = &named.value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (given_[i] == nullptr) {
      RaiseTypeError(name + "() missing required argument: '" + std::string(parameters.begin()[i]) +
                     "'");
    }
  }
}

bool Arguments::Flag(size_t i, bool fallback) const {
  return has(i) ? Truth(*given_[i]) : fallback;
}

int64_t Arguments::Integer(size_t i, int64_t fallback) const {
  return has(i) ? ToIndex(*given_[i]) : fallback;
}

const Str& Arguments::Text(size_t i) const {
  if (!given_[i]->is_string()) {
    RaiseTypeError(std::string(function_) + "() argument " + std::to_string(i + 1) +
                   " must be str, not " + TypeName(*given_[i]));
  }
  return given_[i]->str();
}

}  // namespace moewe::text::jinja
