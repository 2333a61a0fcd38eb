// The text side of an answer: ids in, text out that is safe to show.
#ifndef MOEWE_ENGINE_ANSWER_H_
#define MOEWE_ENGINE_ANSWER_H_

#include <optional>
#include <string>
#include <vector>

#include "engine/stop_matcher.h"
#include "text/tokenizer.h"

namespace moewe::engine {

// Complete UTF-8 only, nothing of a stop string. Not thread-safe.
class Answer {
 public:
  // Without a tokenizer there is no text. Throws Error{kUsage} for an empty stop string.
  Answer(const text::Tokenizer* tokenizer, const std::vector<std::string>& stops)
      : matcher_(stops) {
    if (tokenizer != nullptr) stream_.emplace(*tokenizer, /*skip_special_tokens=*/true);
  }

  std::string Push(text::TokenId id) { return stream_ ? Keep(stream_->Push(id)) : ""; }
  // What was held back, when no more ids come.
  std::string Finish() {
    std::string rest = stream_ ? Keep(stream_->Finish()) : "";
    const std::string held = matcher_.Finish();
    text_ += held;
    return rest + held;
  }

  bool stopped() const { return matcher_.stopped(); }
  const std::string& text() const { return text_; }  // all that was given out

 private:
  std::string Keep(const std::string& piece) {
    std::string safe = matcher_.Push(piece);
    text_ += safe;
    return safe;
  }

  std::optional<text::Tokenizer::Stream> stream_;
  StopMatcher matcher_;
  std::string text_;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_ANSWER_H_
