// Flags that take a number: one way to read it, one way to say what it may be. Values outside of
// the range, NaN and infinities, blanks, units and half-read words are errors that name the flag.
#ifndef MOEWE_CLI_NUMBER_FLAGS_H_
#define MOEWE_CLI_NUMBER_FLAGS_H_

#include <CLI/CLI.hpp>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moewe::cli {

// `text` as a number in [low, high]. Throws Error{kUsage} naming `flag` and the range.
uint64_t ParseWhole(std::string_view flag, std::string_view text, uint64_t low, uint64_t high);
double ParseReal(std::string_view flag, std::string_view text, double low, double high);

// The number in a plain or an optional one.
template <typename T>
struct NumberIn {
  using Type = T;
};
template <typename T>
struct NumberIn<std::optional<T>> {
  using Type = T;
};

// Declares the flag `name` ("-n", "--temp") whose value goes to *value, a number or an optional
// one, and must lie in [low, high].
template <typename Value, typename Bound>
CLI::Option* AddNumber(CLI::App* app, const std::string& name, Value* value, Bound low, Bound high,
                       const std::string& description) {
  using Number = typename NumberIn<Value>::Type;
  constexpr bool kWhole = std::integral<Number>;
  CLI::Option* option = app->add_option_function<std::string>(
      name,
      [=](const std::string& text) {
        if constexpr (kWhole) {
          *value = static_cast<Number>(
              ParseWhole(name, text, static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
        } else {
          *value = static_cast<Number>(ParseReal(name, text, low, high));
        }
      },
      description);
  option->type_name(kWhole ? "N" : "X");
  return option;
}

// --threads, the same for every verb: 0 (the default) is all the cores that this process may use.
CLI::Option* AddThreads(CLI::App* app, int* threads);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_NUMBER_FLAGS_H_
