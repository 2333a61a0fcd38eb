#include "text/jinja/string_literal.h"

#include <array>
#include <utility>

#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// What a backslash and `c` stand for where that is one fixed character.
std::optional<char> SingleCharacter(char c) {
  constexpr std::string_view kWritten = "\\'\"abfnrtv";
  constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
  const size_t at = kWritten.find(c);
  return at == std::string_view::npos ? std::nullopt : std::optional(kMeant[at]);
}

// Names for \N{...}: those that occur in practice; the whole list of Unicode names would be 2 MB.
constexpr std::array<std::pair<std::string_view, char32_t>, 28> kNames = {{
    {"BULLET", 0x2022},
    {"EM DASH", 0x2014},
    {"EN DASH", 0x2013},
    {"HORIZONTAL ELLIPSIS", 0x2026},
    {"NO-BREAK SPACE", 0xA0},
    {"SPACE", 0x20},
    {"LEFT SINGLE QUOTATION MARK", 0x2018},
    {"RIGHT SINGLE QUOTATION MARK", 0x2019},
    {"LEFT DOUBLE QUOTATION MARK", 0x201C},
    {"RIGHT DOUBLE QUOTATION MARK", 0x201D},
    {"ZERO WIDTH SPACE", 0x200B},
    {"ZERO WIDTH JOINER", 0x200D},
    {"ZERO WIDTH NON-JOINER", 0x200C},
    {"ZERO WIDTH NO-BREAK SPACE", 0xFEFF},
    {"LINE SEPARATOR", 0x2028},
    {"PARAGRAPH SEPARATOR", 0x2029},
    {"COPYRIGHT SIGN", 0xA9},
    {"DEGREE SIGN", 0xB0},
    {"MIDDLE DOT", 0xB7},
    {"EURO SIGN", 0x20AC},
    {"RIGHTWARDS ARROW", 0x2192},
    {"LEFTWARDS ARROW", 0x2190},
    {"CHECK MARK", 0x2713},
    {"BLACK STAR", 0x2605},
    {"SNOWMAN", 0x2603},
    {"LOWER ONE EIGHTH BLOCK", 0x2581},
    {"FULLWIDTH VERTICAL LINE", 0xFF5C},
    {"REPLACEMENT CHARACTER", 0xFFFD},
}};

}  // namespace

std::optional<std::string> UnescapeLiteral(std::string_view in, std::string& error) {
  std::string out;
  const auto fail = [&](const char* message) {
    error = message;
    return std::nullopt;
  };
  for (size_t i = 0; i < in.size();) {
    if (in[i] != '\\') {
      out += in[i++];
      continue;
    }
    if (i + 1 >= in.size()) return fail("\\ at end of string");
    const char c = in[i + 1];
    i += 2;
    if (c == '\n') continue;
    if (const auto plain = SingleCharacter(c)) {
      out += *plain;
      continue;
    }
    if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int n = 1; n < 3 && i < in.size() && in[i] >= '0' && in[i] <= '7'; ++n) {
        value = value * 8 + static_cast<char32_t>(in[i++] - '0');
      }
      AppendUtf8(out, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t value = 0;
      for (int n = 0; n < digits; ++n) {
        const int digit = i < in.size() ? HexValue(in[i]) : -1;
        if (digit < 0) {
          return fail(c == 'x'   ? "truncated \\xXX escape"
                      : c == 'u' ? "truncated \\uXXXX escape"
                                 : "truncated \\UXXXXXXXX escape");
        }
        value = value * 16 + static_cast<char32_t>(digit);
        ++i;
      }
      if (value > 0x10FFFF) return fail("illegal Unicode character");
      AppendUtf8(out, value);
    } else if (c == 'N') {
      const size_t close = i < in.size() && in[i] == '{' ? in.find('}', i) : std::string_view::npos;
      if (close == std::string_view::npos) return fail("malformed \\N character escape");
      const std::string_view name = in.substr(i + 1, close - i - 1);
      const auto* found = kNames.begin();
      while (found != kNames.end() && found->first != name) ++found;
      if (found == kNames.end()) return fail("unknown Unicode character name");
      AppendUtf8(out, found->second);
      i = close + 1;
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace moewe::text::jinja
