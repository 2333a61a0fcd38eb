// Matches a call's arguments with the parameters of a built-in function.
#ifndef MOEWE_TEXT_JINJA_ARGUMENTS_H_
#define MOEWE_TEXT_JINJA_ARGUMENTS_H_

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

class Arguments {
 public:
  // The first `required` parameters must be given. A name that begins with a slash can only be
  // given by position. TypeError for too many, unknown, repeated or missing arguments.
  Arguments(std::string_view function, const Args& args,
            std::initializer_list<std::string_view> parameters, size_t required);

  bool has(size_t i) const { return given_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *given_[i]; }  // only if has(i)
  const Value& Or(size_t i, const Value& fallback) const { return has(i) ? *given_[i] : fallback; }
  bool Flag(size_t i, bool fallback) const;           // truth
  int64_t Integer(size_t i, int64_t fallback) const;  // TypeError if it is none
  // A string; TypeError naming the function otherwise.
  const Str& Text(size_t i) const;

 private:
  std::string_view function_;
  std::vector<const Value*> given_;
};

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_ARGUMENTS_H_
