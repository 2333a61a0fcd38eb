// Drafts by looking up: text repeats itself. What followed when the last tokens stood here before
// (in the prompt or in the answer) may follow again.
#ifndef MOEWE_ENGINE_PROMPT_LOOKUP_H_
#define MOEWE_ENGINE_PROMPT_LOOKUP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "engine/drafter.h"

namespace moewe::engine {

// Of earlier places that end with at least the same two tokens, the draft is what follows the one
// that agrees longest (up to kLongestMatch tokens), the latest of equals. A call takes constant
// time for every new token and for the look-up, whatever the length of the text.
class PromptLookup : public Drafter {
 public:
  static constexpr size_t kShortestMatch = 2;
  static constexpr size_t kLongestMatch = 8;

  PromptLookup() { latest_.fill(kNone); }

  Draft Propose(std::span<const TokenId> tokens, std::span<TokenId> out) override;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kBucketBits = 12;
  // Earlier places that a look-up compares at most: of two tokens that are everywhere ("of the")
  // the latest ones say enough.
  static constexpr int kMostCompared = 32;

  static size_t Bucket(TokenId before, TokenId last);

  // Chains of positions whose last two tokens share a bucket, latest first.
  std::array<uint32_t, size_t{1} << kBucketBits> latest_;
  std::vector<uint32_t> earlier_;  // by position
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_PROMPT_LOOKUP_H_
