// A text that remembers which of its bytes a message (a user, a tool, a model) wrote.
#ifndef MOEWE_TEXT_ORIGIN_TEXT_H_
#define MOEWE_TEXT_ORIGIN_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

namespace moewe::text {

// Rendered prompts are one of these: bytes inside `message_spans` came from message content, all
// others from the template and its variables. Only the latter may turn into special tokens.
struct OriginText {
  struct Span {
    size_t begin = 0;  // byte offsets into text, [begin, end)
    size_t end = 0;
    bool operator==(const Span&) const = default;
  };
  std::string text;
  std::vector<Span> message_spans;  // ascending, disjoint, not empty
};

}  // namespace moewe::text

#endif  // MOEWE_TEXT_ORIGIN_TEXT_H_
