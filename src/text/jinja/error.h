// What goes wrong inside a template, under the names that Python and Jinja give it.
#ifndef MOEWE_TEXT_JINJA_ERROR_H_
#define MOEWE_TEXT_JINJA_ERROR_H_

#include <string>

namespace moewe::text::jinja {

// Unwinds a compilation or a rendering. chat_template.cc turns it into moewe::text::TemplateError.
struct Exception {
  std::string type;     // "TypeError", "UndefinedError", "TemplateSyntaxError", ...
  std::string message;  // the bare message
  int line = 0;         // 1-based; 0 = not known (the interpreter fills in the current statement)
};

[[noreturn]] void Raise(std::string type, std::string message, int line = 0);
[[noreturn]] void RaiseTypeError(std::string message);
[[noreturn]] void RaiseValueError(std::string message);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_ERROR_H_
