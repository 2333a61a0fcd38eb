#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "moewe/error.h"

namespace moewe::engine {
namespace {

[[noreturn]] void OutOfRange(const char* name, const char* range, double value) {
  throw Error(ErrorCode::kUsage,
              std::string(name) + " must be " + range + ", not " + std::to_string(value));
}

// Largest logit; the first of equals. Throws if there is none to choose.
size_t CheckedArgMax(std::span<const float> logits) {
  size_t best = 0;
  float best_value = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float value = logits[i];
    if (std::isnan(value) || value == std::numeric_limits<float>::infinity()) {
      throw Error(ErrorCode::kInternal, "the model's logits are not finite (token " +
                                            std::to_string(i) + " is " + std::to_string(value) +
                                            ")");
    }
    if (value > best_value) {
      best_value = value;
      best = i;
    }
  }
  if (best_value == -std::numeric_limits<float>::infinity()) {
    throw Error(ErrorCode::kInternal, "no token can follow: every logit is -inf");
  }
  return best;
}

}  // namespace

void SamplingParams::Validate(size_t vocab_size) const {
  // Written so that NaN fails each test.
  if (!(temperature >= 0.0f && temperature <= 100.0f)) {
    OutOfRange("temperature", "between 0 and 100", temperature);
  }
  if (!(top_p >= 0.0f && top_p <= 1.0f)) OutOfRange("top-p", "between 0 and 1", top_p);
  if (!(min_p >= 0.0f && min_p <= 1.0f)) OutOfRange("min-p", "between 0 and 1", min_p);
  if (!(repetition_penalty > 0.0f && repetition_penalty <= 100.0f)) {
    OutOfRange("repetition penalty", "above 0 and at most 100", repetition_penalty);
  }
  if (!(std::abs(presence_penalty) <= 100.0f)) {
    OutOfRange("presence penalty", "between -100 and 100", presence_penalty);
  }
  if (!(std::abs(frequency_penalty) <= 100.0f)) {
    OutOfRange("frequency penalty", "between -100 and 100", frequency_penalty);
  }
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_size) {
      throw Error(ErrorCode::kUsage, "logit bias for token " + std::to_string(id) +
                                         ", but the vocabulary has " + std::to_string(vocab_size));
    }
    if (!(bias < std::numeric_limits<float>::infinity())) {
      OutOfRange("a logit bias", "a finite number or -inf", bias);
    }
  }
}

double ExpNonPositive(double x) {
  if (!(x >= -708.0)) return 0.0;
  // x = n ln2 + r with |r| <= ln2 / 2; ln2 in two parts so that n * kLn2High is exact.
  constexpr double kLn2High = 0x1.62e42fefa0000p-1;
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  const double n = std::floor(x * 0x1.71547652b82fep+0 + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor series to r^13 / 13!: the rest is below 2^-57 for |r| <= 0.35.
  constexpr double kInverseFactorial[] = {1.0 / 6227020800.0,
                                          1.0 / 479001600.0,
                                          1.0 / 39916800.0,
                                          1.0 / 3628800.0,
                                          1.0 / 362880.0,
                                          1.0 / 40320.0,
                                          1.0 / 5040.0,
                                          1.0 / 720.0,
                                          1.0 / 120.0,
                                          1.0 / 24.0,
                                          1.0 / 6.0,
                                          0.5,
                                          1.0,
                                          1.0};
  double sum = 0.0;
  for (const double coefficient : kInverseFactorial) sum = sum * r + coefficient;
  const auto exponent = static_cast<uint64_t>(static_cast<int64_t>(n) + 1023);
  return sum * std::bit_cast<double>(exponent << 52);
}

Sampler::Sampler(SamplingParams params)
    : params_(std::move(params)),
      random_(params_.seed),
      uses_history_(params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
                    params_.frequency_penalty != 0.0f) {}

void Sampler::Observe(TokenId id) {
  if (!uses_history_) return;
  ++counts_[id];
  if (params_.penalty_window == 0) return;
  window_.push_back(id);
  if (window_.size() <= params_.penalty_window) return;
  const auto oldest = counts_.find(window_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  window_.pop_front();
}

void Sampler::ApplyBiasAndPenalties(std::span<float> logits) const {
  for (const auto& [id, bias] : params_.logit_bias) logits[static_cast<size_t>(id)] += bias;
  // Each id is changed alone, so the map's order does not matter.
  for (const auto& [id, count] : counts_) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    const double repetition = params_.repetition_penalty;
    double logit = logits[static_cast<size_t>(id)];
    logit = logit > 0.0 ? logit / repetition : logit * repetition;
    logit -= params_.frequency_penalty * static_cast<double>(count);
    logit -= params_.presence_penalty;
    logits[static_cast<size_t>(id)] = static_cast<float>(logit);
  }
}

TokenId Sampler::Sample(std::span<float> logits) {
  ApplyBiasAndPenalties(logits);
  const size_t best = CheckedArgMax(logits);
  if (params_.temperature == 0.0f) return static_cast<TokenId>(best);
  return Draw(logits, logits[best]);
}

TokenId Sampler::Draw(std::span<const float> logits, float max) {
  const double temperature = params_.temperature;
  const auto weight = [&](const Candidate& c) {
    return ExpNonPositive((static_cast<double>(c.logit) - max) / temperature);
  };
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -std::numeric_limits<float>::infinity()) {
      candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    }
  }
  const auto falling = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  // The first `sorted` candidates are the largest, in falling order. Few are looked at as a rule,
  // so the order is made piece by piece as the loops below ask for it.
  size_t sorted = 0;
  const auto sort_up_to = [&](size_t n) {
    if (n <= sorted) return;
    const size_t end = std::min(candidates_.size(), std::max({n, sorted * 4, size_t{64}}));
    const auto first = candidates_.begin() + static_cast<ptrdiff_t>(sorted);
    const auto last = candidates_.begin() + static_cast<ptrdiff_t>(end);
    if (end < candidates_.size()) std::nth_element(first, last, candidates_.end(), falling);
    std::sort(first, last, falling);
    sorted = end;
  };

  double sum = 0.0;
  if (params_.top_k != 0 && params_.top_k < candidates_.size()) {
    sort_up_to(params_.top_k);
    candidates_.resize(params_.top_k);
    sorted = std::min(sorted, candidates_.size());
  }
  for (const Candidate& c : candidates_) sum += weight(c);

  // What is kept is a prefix of the falling order; `sum` becomes its weight.
  size_t kept = candidates_.size();
  if (params_.top_p < 1.0f || params_.min_p > 0.0f) {
    const double wanted = static_cast<double>(params_.top_p) * sum;
    double running = 0.0;
    for (kept = 0; kept < candidates_.size();) {
      sort_up_to(kept + 1);
      const double w = weight(candidates_[kept]);
      if (w < params_.min_p && kept > 0) break;  // the largest weight is 1
      running += w;
      ++kept;
      if (params_.top_p < 1.0f && running >= wanted) break;
    }
    sum = running;
  }

  const double target = random_.NextUnit() * sum;
  double running = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    sort_up_to(i + 1);
    running += weight(candidates_[i]);
    if (running > target) return candidates_[i].id;
  }
  // Rounding in another order than that of the sum may leave the target a hair above the total.
  return candidates_[kept - 1].id;
}

}  // namespace moewe::engine
