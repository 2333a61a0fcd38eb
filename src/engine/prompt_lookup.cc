#include "engine/prompt_lookup.h"

#include <algorithm>

namespace moewe::engine {

size_t PromptLookup::Bucket(TokenId before, TokenId last) {
  // The high bits of a product of golden-ratio multiples are well mixed.
  const uint32_t mixed =
      (static_cast<uint32_t>(before) * 0x9E3779B1u ^ static_cast<uint32_t>(last)) * 0x85EBCA77u;
  return mixed >> (32 - kBucketBits);
}

Draft PromptLookup::Propose(std::span<const TokenId> tokens, std::span<TokenId> out) {
  if (tokens.size() < kShortestMatch || out.empty()) return {};
  // All positions up to the last one are entered; that is where its chain begins.
  for (size_t p = earlier_.size(); p < tokens.size(); ++p) {
    earlier_.push_back(kNone);
    if (p == 0) continue;
    uint32_t& latest = latest_[Bucket(tokens[p - 1], tokens[p])];
    earlier_[p] = latest;
    latest = static_cast<uint32_t>(p);
  }
  const size_t end = tokens.size() - 1;
  size_t best = 0;
  size_t best_match = 0;
  uint32_t at = earlier_[end];
  for (int compared = 0; at != kNone && compared < kMostCompared; ++compared) {
    const size_t most = std::min<size_t>(kLongestMatch, at + size_t{1});
    size_t match = 0;
    while (match < most && tokens[at - match] == tokens[end - match]) ++match;
    if (match > best_match) {
      best_match = match;
      best = at;
      if (match == kLongestMatch) break;
    }
    at = earlier_[at];
  }
  if (best_match < kShortestMatch) return {};
  // Where the text ends the draft itself goes on: what repeats every few tokens does so again.
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t from = best + 1 + i;
    out[i] = from < tokens.size() ? tokens[from] : out[from - tokens.size()];
  }
  return {out.size(), best_match};
}

}  // namespace moewe::engine
