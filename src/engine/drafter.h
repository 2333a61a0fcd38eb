// Guessing what comes next, so that one step of the model can check several tokens.
//
// Drafts never change an answer. The model computes the logits of every drafted position in the
// step that decodes the last token; they are the bits that decoding token by token would give,
// since a position's result does not depend on what else is in the batch. Tokens are then drawn
// from them in order, by the same sampler with the same random numbers, as long as each is the one
// that was drafted; what follows the first other one is forgotten. A bad draft costs time only.
#ifndef MOEWE_ENGINE_DRAFTER_H_
#define MOEWE_ENGINE_DRAFTER_H_

#include <cstddef>
#include <span>

#include "model/model.h"

namespace moewe::engine {

using model::TokenId;

struct Draft {
  size_t length = 0;  // tokens that were written
  size_t match = 0;   // tokens that speak for it: the more, the likelier it is right
};

// Of one request. Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;

  // Writes what may follow `tokens` (prompt and answer) to the beginning of `out`: ids of the
  // vocabulary. `tokens` begins with what it was at the last call.
  virtual Draft Propose(std::span<const TokenId> tokens, std::span<TokenId> out) = 0;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_DRAFTER_H_
