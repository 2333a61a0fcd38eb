// Strings of the template language: UTF-8 text that knows which of its bytes a message wrote.
#ifndef MOEWE_TEXT_JINJA_STR_H_
#define MOEWE_TEXT_JINJA_STR_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/origin_text.h"

namespace moewe::text::jinja {

using Span = OriginText::Span;

// `spans` are the bytes of message origin, ascending, disjoint, not empty. The text is UTF-8, where
// a lone surrogate (possible in a template's escapes) takes the three bytes that it would have as a
// character. `safe` marks Markup: text that needs no HTML escaping.
struct Str {
  std::string text;
  std::vector<Span> spans;
  bool safe = false;

  Str() = default;
  explicit Str(std::string t) : text(std::move(t)) {}
  Str(std::string t, std::vector<Span> s) : text(std::move(t)), spans(std::move(s)) {}

  // All bytes of message origin.
  static Str FromMessage(std::string text);

  bool from_message() const { return !spans.empty(); }
  // Bytes [begin, end) with their origin.
  Str Substr(size_t begin, size_t end) const;
  void Append(const Str& other) { Append(other, 0, other.text.size()); }
  void Append(const Str& other, size_t begin, size_t end);
  // Text of template origin.
  void Append(std::string_view plain) { text.append(plain); }
  // A piece of message origin if `message`.
  void Append(std::string_view piece, bool message);
  // `text` (of any length) that was made from this string where positions do not map one to one:
  // all of it counts as message if any of this was.
  Str Derived(std::string derived) const;
};

// Throws Exception when a string would become too long; charges the work of making it.
void CheckStringSize(size_t bytes);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_STR_H_
