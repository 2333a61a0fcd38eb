// One request over one sequence: chunked prefill, then sampled tokens until something stops it.
#ifndef MOEWE_ENGINE_GENERATE_H_
#define MOEWE_ENGINE_GENERATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace moewe::engine {

struct GenerateRequest {
  std::vector<TokenId> prompt;  // not empty
  SamplingParams sampling;
  uint32_t max_tokens = 0;         // 0 = until the end or the context
  uint32_t context = 0;            // positions of prompt and answer together
  uint32_t chunk = 256;            // prefill tokens a step; the result does not depend on it
  std::vector<std::string> stops;  // the answer ends before the first of these
  std::vector<TokenId> eos_ids;    // the answer ends at any of these; they are not part of it
  const std::atomic<bool>* cancel = nullptr;  // looked at between steps
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };
std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateResult {
  std::vector<TokenId> ids;
  std::string text;
  FinishReason finish_reason = FinishReason::kLength;
  double prefill_seconds = 0.0;  // to the first token
  double decode_seconds = 0.0;   // the others
};

// `on_text` gets the answer's text in complete UTF-8 as it becomes safe to show. `tokenizer` may be
// null: then there is only ids. `sequence` must be empty and is left with everything the model has
// seen. Throws Error{kUsage} before any computing if the prompt leaves no room in the context, and
// what Forward and the sampler throw.
GenerateResult Generate(model::Model* model, const text::Tokenizer* tokenizer,
                        model::Sequence* sequence, const GenerateRequest& request,
                        const std::function<void(std::string_view)>& on_text);

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_GENERATE_H_
