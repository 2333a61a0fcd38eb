// UTF-8 and Python's notions of characters (its str methods), on top of utf8proc.
#ifndef MOEWE_TEXT_JINJA_UNICODE_H_
#define MOEWE_TEXT_JINJA_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moewe::text::jinja {

// Decodes the code point at `pos` and moves behind it. Surrogates are accepted; a byte that begins
// no character is one code point U+FFFD.
char32_t NextCodePoint(std::string_view text, size_t& pos);
// The start of the code point that ends at `pos` (> 0).
size_t PreviousStart(std::string_view text, size_t pos);
void AppendUtf8(std::string& out, char32_t code_point);
std::string ToUtf8(char32_t code_point);
size_t CountCodePoints(std::string_view text);
bool IsAscii(std::string_view text);
// Byte offset of the code point with this index; text.size() at or behind the end.
size_t OffsetOfCodePoint(std::string_view text, size_t index);
// Replaces what is not UTF-8 (lone surrogates, stray bytes) by U+FFFD, byte for byte where
// possible, so that offsets stay valid: a surrogate takes three bytes, as U+FFFD does. Stray bytes
// become '?'.
void MakeValidUtf8(std::string& text);

bool IsSpace(char32_t c);      // str.isspace
bool IsLineBreak(char32_t c);  // where str.splitlines splits
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsAlnum(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
bool IsPrintable(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);
bool IsWordChar(char32_t c);   // \w of a regular expression
int DecimalValue(char32_t c);  // 0-9 for decimal digits, else -1

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string CaseFold(std::string_view text);
std::string Title(std::string_view text);       // str.title
std::string Capitalize(std::string_view text);  // str.capitalize
std::string SwapCase(std::string_view text);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_UNICODE_H_
