// The tests (`x is name`), by name.
#ifndef MOEWE_TEXT_JINJA_TESTS_H_
#define MOEWE_TEXT_JINJA_TESTS_H_

#include <string_view>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

using TestFunction = bool (*)(const Value& subject, Args& args);

// Null if there is none of this name.
TestFunction FindTest(std::string_view name);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_TESTS_H_
