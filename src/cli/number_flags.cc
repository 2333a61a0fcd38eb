#include "cli/number_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <system_error>

#include "moewe/error.h"

namespace moewe::cli {
namespace {

template <typename T>
bool Parse(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [last, problem] = std::from_chars(text.data(), end, *value);
  return problem == std::errc() && last == end;
}

[[noreturn]] void Fail(std::string_view flag, const std::string& expected, std::string_view text) {
  throw Error(ErrorCode::kUsage, fmt::format("{} takes {}, not '{}'", flag, expected, text),
              {"", std::string(flag)});
}

}  // namespace

uint64_t ParseWhole(std::string_view flag, std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  if (!Parse(text, &value) || value < low || value > high) {
    Fail(flag, fmt::format("a whole number from {} to {}", low, high), text);
  }
  return value;
}

double ParseReal(std::string_view flag, std::string_view text, double low, double high) {
  double value = 0.0;
  if (!Parse(text, &value) || !std::isfinite(value) || value < low || value > high) {
    Fail(flag, fmt::format("a number from {} to {}", low, high), text);
  }
  return value;
}

CLI::Option* AddThreads(CLI::App* app, int* threads) {
  return AddNumber(app, "--threads", threads, 0, 1024,
                   "threads (default: the cores of this process)");
}

}  // namespace moewe::cli
