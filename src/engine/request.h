// What a request asks for and what it gives back.
#ifndef MOEWE_ENGINE_REQUEST_H_
#define MOEWE_ENGINE_REQUEST_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "moewe/error.h"

namespace moewe::engine {

struct Request {
  std::vector<TokenId> prompt;  // not empty
  SamplingParams sampling;
  uint32_t max_tokens = 0;         // 0 = until the end or the context
  std::vector<std::string> stops;  // the answer ends before the first of these
  std::vector<TokenId> eos_ids;    // the answer ends at any of these; they are not part of it
  // Looked at between steps; must live until the result is there.
  const std::atomic<bool>* cancel = nullptr;
  // A second such flag, of a caller in between.
  std::shared_ptr<const std::atomic<bool>> abandoned;

  // The answer's text in complete UTF-8 as it becomes safe to show.
  std::function<void(std::string_view text)> on_text;

  // If set, the prompt is scored and nothing is sampled: the logits [n, vocab_size] of prompt
  // positions [first, first + n), in ascending order, each once. Called on the thread that
  // computes.
  std::function<void(size_t first, std::span<const float> logits)> on_logits;
  // Of them, only those of the last position, which costs one row of the head instead of all.
  bool last_logits_only = false;
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kError };

// What drafts (engine/drafter.h) did for a request.
struct DraftStats {
  uint64_t drafted = 0;   // tokens that a step checked beside the next one
  uint64_t accepted = 0;  // of them: each is one step less
  uint64_t steps = 0;     // that decoded
  double seconds = 0.0;
  uint64_t plain_steps = 0;  // of these, of one token
  double plain_seconds = 0.0;

  // Times as fast as with plain steps alone, by the mean of those that there were; 0 = they were
  // too few to compare with.
  double speed_up() const {
    constexpr uint64_t kEnough = 8;
    if (plain_steps < kEnough || seconds <= 0.0) return 0.0;
    const double alone = plain_seconds / static_cast<double>(plain_steps);
    return alone * static_cast<double>(steps + accepted) / seconds;
  }
};

struct Result {
  std::vector<TokenId> ids;
  std::string text;
  FinishReason finish_reason = FinishReason::kLength;
  std::optional<Error> error;  // with kError; ids and text are what came before it

  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;      // of the prompt, those whose keys and values were there already
  double queue_seconds = 0.0;    // until the first step
  double prefill_seconds = 0.0;  // from there to the first token
  double decode_seconds = 0.0;   // the others
  DraftStats drafts;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_REQUEST_H_
