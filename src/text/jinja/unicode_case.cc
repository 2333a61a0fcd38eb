// Python's upper, lower, casefold, title, capitalize and swapcase.
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// Unconditional mappings of one character to several (SpecialCasing.txt of the Unicode standard),
// which utf8proc's simple mappings leave out. Unused places are 0.
struct SpecialCase {
  char32_t from;
  std::array<char32_t, 3> upper;
  std::array<char32_t, 3> title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0x00DF, {0x0053, 0x0053}, {0x0053, 0x0073}},
    {0x0149, {0x02BC, 0x004E}, {0x02BC, 0x004E}},
    {0x01F0, {0x004A, 0x030C}, {0x004A, 0x030C}},
    {0x0390, {0x0399, 0x0308, 0x0301}, {0x0399, 0x0308, 0x0301}},
    {0x03B0, {0x03A5, 0x0308, 0x0301}, {0x03A5, 0x0308, 0x0301}},
    {0x0587, {0x0535, 0x0552}, {0x0535, 0x0582}},
    {0x1E96, {0x0048, 0x0331}, {0x0048, 0x0331}},
    {0x1E97, {0x0054, 0x0308}, {0x0054, 0x0308}},
    {0x1E98, {0x0057, 0x030A}, {0x0057, 0x030A}},
    {0x1E99, {0x0059, 0x030A}, {0x0059, 0x030A}},
    {0x1E9A, {0x0041, 0x02BE}, {0x0041, 0x02BE}},
    {0x1F50, {0x03A5, 0x0313}, {0x03A5, 0x0313}},
    {0x1F52, {0x03A5, 0x0313, 0x0300}, {0x03A5, 0x0313, 0x0300}},
    {0x1F54, {0x03A5, 0x0313, 0x0301}, {0x03A5, 0x0313, 0x0301}},
    {0x1F56, {0x03A5, 0x0313, 0x0342}, {0x03A5, 0x0313, 0x0342}},
    {0x1F80, {0x1F08, 0x0399}, {0x1F88}},
    {0x1F81, {0x1F09, 0x0399}, {0x1F89}},
    {0x1F82, {0x1F0A, 0x0399}, {0x1F8A}},
    {0x1F83, {0x1F0B, 0x0399}, {0x1F8B}},
    {0x1F84, {0x1F0C, 0x0399}, {0x1F8C}},
    {0x1F85, {0x1F0D, 0x0399}, {0x1F8D}},
    {0x1F86, {0x1F0E, 0x0399}, {0x1F8E}},
    {0x1F87, {0x1F0F, 0x0399}, {0x1F8F}},
    {0x1F88, {0x1F08, 0x0399}, {0x1F88}},
    {0x1F89, {0x1F09, 0x0399}, {0x1F89}},
    {0x1F8A, {0x1F0A, 0x0399}, {0x1F8A}},
    {0x1F8B, {0x1F0B, 0x0399}, {0x1F8B}},
    {0x1F8C, {0x1F0C, 0x0399}, {0x1F8C}},
    {0x1F8D, {0x1F0D, 0x0399}, {0x1F8D}},
    {0x1F8E, {0x1F0E, 0x0399}, {0x1F8E}},
    {0x1F8F, {0x1F0F, 0x0399}, {0x1F8F}},
    {0x1F90, {0x1F28, 0x0399}, {0x1F98}},
    {0x1F91, {0x1F29, 0x0399}, {0x1F99}},
    {0x1F92, {0x1F2A, 0x0399}, {0x1F9A}},
    {0x1F93, {0x1F2B, 0x0399}, {0x1F9B}},
    {0x1F94, {0x1F2C, 0x0399}, {0x1F9C}},
    {0x1F95, {0x1F2D, 0x0399}, {0x1F9D}},
    {0x1F96, {0x1F2E, 0x0399}, {0x1F9E}},
    {0x1F97, {0x1F2F, 0x0399}, {0x1F9F}},
    {0x1F98, {0x1F28, 0x0399}, {0x1F98}},
    {0x1F99, {0x1F29, 0x0399}, {0x1F99}},
    {0x1F9A, {0x1F2A, 0x0399}, {0x1F9A}},
    {0x1F9B, {0x1F2B, 0x0399}, {0x1F9B}},
    {0x1F9C, {0x1F2C, 0x0399}, {0x1F9C}},
    {0x1F9D, {0x1F2D, 0x0399}, {0x1F9D}},
    {0x1F9E, {0x1F2E, 0x0399}, {0x1F9E}},
    {0x1F9F, {0x1F2F, 0x0399}, {0x1F9F}},
    {0x1FA0, {0x1F68, 0x0399}, {0x1FA8}},
    {0x1FA1, {0x1F69, 0x0399}, {0x1FA9}},
    {0x1FA2, {0x1F6A, 0x0399}, {0x1FAA}},
    {0x1FA3, {0x1F6B, 0x0399}, {0x1FAB}},
    {0x1FA4, {0x1F6C, 0x0399}, {0x1FAC}},
    {0x1FA5, {0x1F6D, 0x0399}, {0x1FAD}},
    {0x1FA6, {0x1F6E, 0x0399}, {0x1FAE}},
    {0x1FA7, {0x1F6F, 0x0399}, {0x1FAF}},
    {0x1FA8, {0x1F68, 0x0399}, {0x1FA8}},
    {0x1FA9, {0x1F69, 0x0399}, {0x1FA9}},
    {0x1FAA, {0x1F6A, 0x0399}, {0x1FAA}},
    {0x1FAB, {0x1F6B, 0x0399}, {0x1FAB}},
    {0x1FAC, {0x1F6C, 0x0399}, {0x1FAC}},
    {0x1FAD, {0x1F6D, 0x0399}, {0x1FAD}},
    {0x1FAE, {0x1F6E, 0x0399}, {0x1FAE}},
    {0x1FAF, {0x1F6F, 0x0399}, {0x1FAF}},
    {0x1FB2, {0x1FBA, 0x0399}, {0x1FBA, 0x0345}},
    {0x1FB3, {0x0391, 0x0399}, {0x1FBC}},
    {0x1FB4, {0x0386, 0x0399}, {0x0386, 0x0345}},
    {0x1FB6, {0x0391, 0x0342}, {0x0391, 0x0342}},
    {0x1FB7, {0x0391, 0x0342, 0x0399}, {0x0391, 0x0342, 0x0345}},
    {0x1FBC, {0x0391, 0x0399}, {0x1FBC}},
    {0x1FC2, {0x1FCA, 0x0399}, {0x1FCA, 0x0345}},
    {0x1FC3, {0x0397, 0x0399}, {0x1FCC}},
    {0x1FC4, {0x0389, 0x0399}, {0x0389, 0x0345}},
    {0x1FC6, {0x0397, 0x0342}, {0x0397, 0x0342}},
    {0x1FC7, {0x0397, 0x0342, 0x0399}, {0x0397, 0x0342, 0x0345}},
    {0x1FCC, {0x0397, 0x0399}, {0x1FCC}},
    {0x1FD2, {0x0399, 0x0308, 0x0300}, {0x0399, 0x0308, 0x0300}},
    {0x1FD3, {0x0399, 0x0308, 0x0301}, {0x0399, 0x0308, 0x0301}},
    {0x1FD6, {0x0399, 0x0342}, {0x0399, 0x0342}},
    {0x1FD7, {0x0399, 0x0308, 0x0342}, {0x0399, 0x0308, 0x0342}},
    {0x1FE2, {0x03A5, 0x0308, 0x0300}, {0x03A5, 0x0308, 0x0300}},
    {0x1FE3, {0x03A5, 0x0308, 0x0301}, {0x03A5, 0x0308, 0x0301}},
    {0x1FE4, {0x03A1, 0x0313}, {0x03A1, 0x0313}},
    {0x1FE6, {0x03A5, 0x0342}, {0x03A5, 0x0342}},
    {0x1FE7, {0x03A5, 0x0308, 0x0342}, {0x03A5, 0x0308, 0x0342}},
    {0x1FF2, {0x1FFA, 0x0399}, {0x1FFA, 0x0345}},
    {0x1FF3, {0x03A9, 0x0399}, {0x1FFC}},
    {0x1FF4, {0x038F, 0x0399}, {0x038F, 0x0345}},
    {0x1FF6, {0x03A9, 0x0342}, {0x03A9, 0x0342}},
    {0x1FF7, {0x03A9, 0x0342, 0x0399}, {0x03A9, 0x0342, 0x0345}},
    {0x1FFC, {0x03A9, 0x0399}, {0x1FFC}},
    {0xFB00, {0x0046, 0x0046}, {0x0046, 0x0066}},
    {0xFB01, {0x0046, 0x0049}, {0x0046, 0x0069}},
    {0xFB02, {0x0046, 0x004C}, {0x0046, 0x006C}},
    {0xFB03, {0x0046, 0x0046, 0x0049}, {0x0046, 0x0066, 0x0069}},
    {0xFB04, {0x0046, 0x0046, 0x004C}, {0x0046, 0x0066, 0x006C}},
    {0xFB05, {0x0053, 0x0054}, {0x0053, 0x0074}},
    {0xFB06, {0x0053, 0x0054}, {0x0053, 0x0074}},
    {0xFB13, {0x0544, 0x0546}, {0x0544, 0x0576}},
    {0xFB14, {0x0544, 0x0535}, {0x0544, 0x0565}},
    {0xFB15, {0x0544, 0x053B}, {0x0544, 0x056B}},
    {0xFB16, {0x054E, 0x0546}, {0x054E, 0x0576}},
    {0xFB17, {0x0544, 0x053D}, {0x0544, 0x056D}},
};

const SpecialCase* FindSpecialCase(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                       [](const SpecialCase& s, char32_t v) { return s.from < v; });
  return found != std::end(kSpecialCases) && found->from == c ? found : nullptr;
}

void AppendAll(std::string& out, const std::array<char32_t, 3>& code_points) {
  for (const char32_t c : code_points) {
    if (c != 0) AppendUtf8(out, c);
  }
}

void AppendUpper(std::string& out, char32_t c) {
  if (const SpecialCase* special = c < 0x80 ? nullptr : FindSpecialCase(c)) {
    AppendAll(out, special->upper);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))));
  }
}

void AppendTitle(std::string& out, char32_t c) {
  if (const SpecialCase* special = c < 0x80 ? nullptr : FindSpecialCase(c)) {
    AppendAll(out, special->title);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c))));
  }
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Case_Ignorable: marks, format characters, modifiers, and the punctuation inside of words.
bool IsCaseIgnorable(char32_t c) {
  switch (c) {
    case '\'':
    case '.':
    case ':':
    case 0xB7:
    case 0x387:
    case 0x55F:
    case 0x5F4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xFE13:
    case 0xFE52:
    case 0xFE55:
    case 0xFF07:
    case 0xFF0E:
    case 0xFF1A:
      return true;
    default:
      break;
  }
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

// A capital sigma at `begin` (ending at `end`) closes a word.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t pos = begin; pos > 0;) {
    pos = PreviousStart(text, pos);
    size_t next = pos;
    const char32_t c = NextCodePoint(text, next);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  for (size_t pos = end; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

void AppendLower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x3A3) {
    AppendUtf8(out, IsFinalSigma(text, begin, end) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {
    out += "i\u0307";
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
  }
}

}  // namespace

std::string Upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) AppendUpper(out, NextCodePoint(text, pos));
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, pos);
    AppendLower(out, text, begin, pos, c);
  }
  return out;
}

std::string CaseFold(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (c < 0x80) {
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      continue;
    }
    int32_t folded[8];
    int last_boundclass = 0;
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(c), folded, 8,
                                               UTF8PROC_CASEFOLD, &last_boundclass);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i) {
      AppendUtf8(out, static_cast<char32_t>(folded[i]));
    }
    if (count <= 0) AppendUtf8(out, c);
  }
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, pos);
    if (inside) {
      AppendLower(out, text, begin, pos, c);
    } else {
      AppendTitle(out, c);
    }
    inside = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, pos);
    if (begin == 0) {
      AppendTitle(out, c);
    } else {
      AppendLower(out, text, begin, pos, c);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t c = NextCodePoint(text, pos);
    if (IsUpper(c)) {
      AppendLower(out, text, begin, pos, c);
    } else if (IsLower(c)) {
      AppendUpper(out, c);
    } else {
      AppendUtf8(out, c);
    }
  }
  return out;
}

}  // namespace moewe::text::jinja
