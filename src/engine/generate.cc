#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/stop_matcher.h"
#include "moewe/error.h"

namespace moewe::engine {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void CheckPrompt(const GenerateRequest& request) {
  if (request.prompt.empty()) throw Error(ErrorCode::kUsage, "the prompt has no tokens");
  if (request.prompt.size() >= request.context) {
    throw Error(ErrorCode::kUsage,
                "context length exceeded: the prompt has " + std::to_string(request.prompt.size()) +
                    " tokens and the context is " + std::to_string(request.context));
  }
}

// The text side of an answer: ids in, safe text out.
class Output {
 public:
  Output(const text::Tokenizer* tokenizer, const GenerateRequest& request,
         const std::function<void(std::string_view)>& on_text, std::string* text)
      : matcher_(request.stops), on_text_(on_text), text_(text) {
    if (tokenizer != nullptr) stream_.emplace(*tokenizer, /*skip_special_tokens=*/true);
  }

  // False once a stop string is complete.
  bool Push(TokenId id) {
    if (stream_) Show(matcher_.Push(stream_->Push(id)));
    return !matcher_.stopped();
  }
  void Finish() {
    if (stream_) Show(matcher_.Push(stream_->Finish()));
    Show(matcher_.Finish());
  }

 private:
  void Show(const std::string& piece) {
    if (piece.empty()) return;
    *text_ += piece;
    on_text_(piece);
  }

  std::optional<text::Tokenizer::Stream> stream_;
  StopMatcher matcher_;
  const std::function<void(std::string_view)>& on_text_;
  std::string* text_;
};

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "length";
}

GenerateResult Generate(model::Model* model, const text::Tokenizer* tokenizer,
                        model::Sequence* sequence, const GenerateRequest& request,
                        const std::function<void(std::string_view)>& on_text) {
  CheckPrompt(request);
  request.sampling.Validate(model->config().vocab_size);
  GenerateResult result;
  Output output(tokenizer, request, on_text, &result.text);
  Sampler sampler(request.sampling);
  for (const TokenId id : request.prompt) sampler.Observe(id);
  const auto cancelled = [&] { return request.cancel != nullptr && request.cancel->load(); };

  const auto start = Clock::now();
  std::vector<float> logits;
  std::span<const TokenId> pending(request.prompt);
  while (true) {
    if (cancelled()) {
      result.finish_reason = FinishReason::kCancelled;
      break;
    }
    const size_t n = std::min<size_t>(pending.size(), std::max(1u, request.chunk));
    model::SequenceChunk chunk;
    chunk.sequence = sequence;
    chunk.tokens = pending.first(n);
    pending = pending.subspan(n);
    using Wanted = model::SequenceChunk::Logits;
    chunk.logits = pending.empty() ? Wanted::kLast : Wanted::kNone;
    logits.clear();
    model->Forward({&chunk, 1}, &logits);
    if (!pending.empty()) continue;

    model->checkpoint().CheckReadable();
    const TokenId id = sampler.Sample(logits);
    if (result.ids.empty()) result.prefill_seconds = SecondsSince(start);
    if (std::ranges::find(request.eos_ids, id) != request.eos_ids.end()) {
      result.finish_reason = FinishReason::kStop;
      break;
    }
    result.ids.push_back(id);
    sampler.Observe(id);
    if (!output.Push(id)) {
      result.finish_reason = FinishReason::kStop;
      break;
    }
    if (result.ids.size() == request.max_tokens ||
        request.prompt.size() + result.ids.size() >= request.context) {
      break;
    }
    pending = {&result.ids.back(), 1};
  }
  output.Finish();
  result.decode_seconds = SecondsSince(start) - result.prefill_seconds;
  return result;
}

}  // namespace moewe::engine
