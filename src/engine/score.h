// How well a model predicts given tokens: negative log likelihoods, window by window.
//
// The ids are cut into windows of `window` tokens that do not overlap; every window is scored
// alone, without context from the one before; its first token is not predicted; a shorter window at
// the end counts if it has at least two tokens.
#ifndef MOEWE_ENGINE_SCORE_H_
#define MOEWE_ENGINE_SCORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/model.h"
#include "platform/thread_pool.h"

namespace moewe::engine {

using model::TokenId;

// -log softmax(logits)[token] in nats, in f64: the sum runs over the vocabulary in its order, with
// basic operations only, so that it is the same on every platform but for the one logarithm at the
// end. Throws Error{kInternal} for logits that are NaN or +inf, or all -inf.
double NegativeLogLikelihood(std::span<const float> logits, TokenId token);

struct ScoreOptions {
  uint32_t window = 512;                      // at least 2
  uint32_t chunk = 256;                       // tokens a step; the result does not depend on it
  size_t max_windows = 0;                     // only the first so many; 0 = all
  const std::atomic<bool>* cancel = nullptr;  // looked at between steps
};

struct Score {
  std::vector<double> nll;  // of each predicted token, in order; nats
  size_t tokens = 0;        // read, predicted or not
  size_t windows = 0;

  double MeanNll() const;  // over `nll`, summed in order
};

// How many windows `tokens` tokens make.
size_t WindowCount(size_t tokens, const ScoreOptions& options);

// `pool` needs room for one window. `progress` (may be null) is called after every window with what
// is done so far and the number of all windows. Throws Error{kUsage} if there is nothing to
// predict, for a window below 2 and for ids outside of the vocabulary; Error{kInterrupted} if
// cancelled; and what Forward throws.
Score ScoreTokens(model::Model* model, model::KvPool* pool, ThreadPool* threads,
                  std::span<const TokenId> ids, const ScoreOptions& options,
                  const std::function<void(const Score& so_far, size_t windows)>& progress = {});

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_SCORE_H_
