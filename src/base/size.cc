#include "base/size.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

#include "moewe/error.h"

namespace moewe {

uint64_t ParseSize(std::string_view text, std::string_view what) {
  const auto fail = [&](const char* why) {
    throw Error(ErrorCode::kUsage, std::string(what) + " '" + std::string(text) + "' " + why +
                                       "; write for example 8GiB or 500MB");
  };
  double number = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  // Fixed notation only: "1e3" and "inf" are no sizes.
  const auto parsed = std::from_chars(begin, end, number, std::chars_format::fixed);
  if (parsed.ec != std::errc() || !(number >= 0.0) || number > 1e19) fail("is not a size");

  std::string unit;
  for (const char* c = parsed.ptr; c != end; ++c) {
    if (*c == ' ' && unit.empty()) continue;
    unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(*c))));
  }
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos) fail("has an unknown unit");
    const std::string_view rest = std::string_view(unit).substr(1);
    if (rest != "" && rest != "b" && rest != "ib") fail("has an unknown unit");
    for (size_t i = 0; i <= power; ++i) factor *= rest == "b" ? 1000 : 1024;
  }
  const double bytes = number * factor;
  if (bytes >= 0x1p64) fail("is too large");
  return static_cast<uint64_t>(bytes);
}

std::string FormatSize(uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // 999.5 would be printed as "1000".
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, kUnits[unit]);
  return text.data();
}

}  // namespace moewe
