// From the logits of one position to the next token.
//
// The steps, in this order (Hugging Face's order of processors and warpers):
//   1. logit bias            logit[id] += bias
//   2. repetition penalty    logit > 0 ? logit / r : logit * r, once an id of the window (Keskar et
//   al. 2019)
//   3. frequency, presence   logit -= frequency * count(id in window) + presence, for ids of the
//   window
//   4. temperature 0         the largest logit; ties go to the lower id. No random number is used.
//      otherwise             weight[id] = exp((logit[id] - max) / temperature)
//   5. top-k                 the k largest; ties go to the lower id
//   6. top-p                 the shortest prefix, in falling order, whose weights reach p of the
//   sum after step 5
//   7. min-p                 of these, the ones with weight >= min_p times the largest weight
//   8. draw                  one random number u: the first id, in falling order, whose running sum
//   exceeds u * sum
// The window is the last `penalty_window` tokens of prompt and answer together. All of it is
// computed in f64 with basic operations in a fixed order, exp included, so that a seed gives the
// same text on every platform.
#ifndef MOEWE_ENGINE_SAMPLER_H_
#define MOEWE_ENGINE_SAMPLER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/random.h"
#include "model/model.h"

namespace moewe::engine {

using model::TokenId;

struct SamplingParams {
  float temperature = 0.7f;         // 0 = greedy
  uint32_t top_k = 0;               // 0 = off
  float top_p = 0.95f;              // 1 = off; 0 keeps the most likely token
  float min_p = 0.0f;               // 0 = off
  float repetition_penalty = 1.0f;  // 1 = off
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t penalty_window = 0;                        // tokens that penalties look back on; 0 = all
  std::vector<std::pair<TokenId, float>> logit_bias;  // -inf forbids an id
  uint64_t seed = 0;

  // Throws Error{kUsage} naming the value that is out of range (NaN included), or a biased id
  // outside of the vocabulary.
  void Validate(size_t vocab_size) const;
};

// e^x for x <= 0 with IEEE basic operations only: the same bits on every platform, within 2 ulp of
// the true value. Below -708 the result is 0.
double ExpNonPositive(double x);

// One request's sampler. Not thread-safe.
class Sampler {
 public:
  explicit Sampler(SamplingParams params);

  // Counts a token of the prompt or of the answer; in order.
  void Observe(TokenId id);

  // The next token. `logits` [vocab_size] are changed. Throws Error{kInternal} where there is
  // nothing to choose from: a NaN or +inf among the logits, or all of them -inf.
  TokenId Sample(std::span<float> logits);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };

  void ApplyBiasAndPenalties(std::span<float> logits) const;
  TokenId Draw(std::span<const float> logits, float max);

  SamplingParams params_;
  Random random_;
  bool uses_history_;
  std::deque<TokenId> window_;
  std::unordered_map<TokenId, uint32_t> counts_;
  std::vector<Candidate> candidates_;  // scratch
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_SAMPLER_H_
