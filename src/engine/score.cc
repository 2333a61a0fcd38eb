#include "engine/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "engine/sampler.h"
#include "model/memory_plan.h"
#include "moewe/error.h"

namespace moewe::engine {
namespace {

// NaN if the logits say nothing about any token.
double NllOrNan(std::span<const float> logits, TokenId token) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  float max = -kInfinity;
  for (const float value : logits) {
    if (!(value < kInfinity)) return kNan;
    max = std::max(max, value);
  }
  if (max == -kInfinity) return kNan;
  double sum = 0.0;
  for (const float value : logits) sum += ExpNonPositive(static_cast<double>(value) - max);
  return std::log(sum) - (static_cast<double>(logits[static_cast<size_t>(token)]) - max);
}

[[noreturn]] void NotFinite() {
  throw Error(ErrorCode::kInternal, "the model's logits are not finite");
}

void Check(const model::Model& model, std::span<const TokenId> ids, const ScoreOptions& options) {
  if (options.window < 2) {
    throw Error(ErrorCode::kUsage, "a window of " + std::to_string(options.window) +
                                       " token predicts nothing: at least 2");
  }
  if (ids.size() < 2) {
    throw Error(ErrorCode::kUsage,
                std::to_string(ids.size()) + " tokens: nothing to predict, at least 2 are needed");
  }
  const uint32_t vocab = model.config().vocab_size;
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < vocab) continue;
    throw Error(ErrorCode::kUsage, "token id " + std::to_string(id) +
                                       " is outside of the vocabulary of " + std::to_string(vocab));
  }
}

}  // namespace

double NegativeLogLikelihood(std::span<const float> logits, TokenId token) {
  const double nll = NllOrNan(logits, token);
  if (std::isnan(nll)) NotFinite();
  return nll;
}

double Score::MeanNll() const {
  double sum = 0.0;
  for (const double value : nll) sum += value;
  return sum / static_cast<double>(nll.size());
}

size_t WindowCount(size_t tokens, const ScoreOptions& options) {
  const size_t whole = tokens / options.window;
  const size_t windows = whole + (tokens % options.window >= 2 ? 1 : 0);
  return options.max_windows == 0 ? windows : std::min(windows, options.max_windows);
}

Score ScoreTokens(model::Model* model, model::KvPool* pool, ThreadPool* threads,
                  std::span<const TokenId> ids, const ScoreOptions& options,
                  const std::function<void(const Score& so_far, size_t windows)>& progress) {
  Check(*model, ids, options);
  const size_t vocab = model->config().vocab_size;
  const size_t windows = WindowCount(ids.size(), options);
  const size_t step = model::LogitRowsOfStep(model->config(), options.chunk);
  Score score;
  std::vector<float> logits;
  while (score.windows < windows) {
    const size_t begin = score.windows * options.window;
    const auto window = ids.subspan(begin, std::min<size_t>(options.window, ids.size() - begin));
    model::Sequence sequence(pool);
    // Nothing is asked of the last token's logits, so it is not computed.
    for (size_t at = 0; at + 1 < window.size();) {
      if (options.cancel != nullptr && options.cancel->load()) {
        throw Error(ErrorCode::kInterrupted, "stopped");
      }
      const size_t n = std::min(step, window.size() - 1 - at);
      model::SequenceChunk chunk;
      chunk.sequence = &sequence;
      chunk.tokens = window.subspan(at, n);
      chunk.logits = model::SequenceChunk::Logits::kAll;
      logits.clear();
      model->Forward({&chunk, 1}, &logits);
      const size_t first = score.nll.size();
      score.nll.resize(first + n);
      threads->Run(n, [&](size_t row, int) {
        score.nll[first + row] =
            NllOrNan({logits.data() + row * vocab, vocab}, window[at + row + 1]);
      });
      if (std::ranges::any_of(std::span(score.nll).subspan(first),
                              [](double nll) { return std::isnan(nll); })) {
        NotFinite();
      }
      at += n;
    }
    ++score.windows;
    score.tokens += window.size();
    if (progress) progress(score, windows);
  }
  model->checkpoint().CheckReadable();
  return score;
}

}  // namespace moewe::engine
