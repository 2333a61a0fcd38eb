// Models for the tests of this layer, and one that watches or disturbs what it runs.
#ifndef MOEWE_ENGINE_TEST_MODEL_H_
#define MOEWE_ENGINE_TEST_MODEL_H_

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "formats/checkpoint.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace moewe::engine {

struct TestModel {
  explicit TestModel(const std::string& path,
                     kernels::Activations activations = kernels::Activations::kF32,
                     int num_threads = 1, bool draft_head = false)
      : threads(num_threads), checkpoint(formats::OpenCheckpoint(path)) {
    model::LoadOptions options;
    options.activations = activations;
    options.task = "none";
    options.draft_head = draft_head;
    model = model::Model::Load(checkpoint, options, &threads);
    if (!checkpoint->tokenizer_json().empty()) {
      tokenizer = text::Tokenizer::FromJson(checkpoint->tokenizer_json(), path);
    }
  }

  ThreadPool threads;
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
};

// Passes everything on, and keeps each row of logits that is asked for and how wide steps were.
class WatchedModel : public model::Model {
 public:
  explicit WatchedModel(model::Model* inner) : inner_(inner) {}

  const model::ModelConfig& config() const override { return inner_->config(); }
  const formats::Checkpoint& checkpoint() const override { return inner_->checkpoint(); }
  uint64_t weight_bytes_per_token() const override { return inner_->weight_bytes_per_token(); }
  uint64_t weight_bytes_total() const override { return inner_->weight_bytes_total(); }
  uint64_t expert_bytes_total() const override { return inner_->expert_bytes_total(); }

  std::span<const formats::TensorView> tensors() const override { return inner_->tensors(); }
  std::optional<model::StreamStats> stream_stats() const override { return inner_->stream_stats(); }
  Bytes stream_memory() const override { return inner_->stream_memory(); }
  bool has_draft_head() const override { return inner_->has_draft_head(); }
  size_t Draft(model::Sequence* sequence, TokenId token, std::span<TokenId> out,
               std::vector<float>* logits) override {
    ++drafts;
    return inner_->Draft(sequence, token, out, logits);
  }

  void Forward(std::span<const model::SequenceChunk> chunks, std::vector<float>* logits,
               model::ForwardObserver* observer) override {
    for (const model::SequenceChunk& chunk : chunks) {
      if (before) before(chunk);
    }
    inner_->Forward(chunks, logits, observer);
    const size_t vocab = config().vocab_size;
    size_t at = 0;
    for (const model::SequenceChunk& chunk : chunks) {
      using Logits = model::SequenceChunk::Logits;
      size_t wanted = chunk.logits == Logits::kNone ? 0 : 1;
      if (chunk.logits == Logits::kAll) wanted = chunk.tokens.size();
      for (; wanted > 0; --wanted, at += vocab) {
        if (after) after(chunk, std::span(*logits).subspan(at, vocab));
        rows.emplace_back(logits->begin() + static_cast<ptrdiff_t>(at),
                          logits->begin() + static_cast<ptrdiff_t>(at + vocab));
      }
    }
    widest = std::max(widest, chunks.size());
  }

  // The rows in an order that does not depend on when they were computed.
  std::vector<std::vector<float>> SortedRows() const {
    auto sorted = rows;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  std::function<void(const model::SequenceChunk&)> before;  // may throw
  std::function<void(const model::SequenceChunk&, std::span<float> row)> after;
  std::vector<std::vector<float>> rows;
  size_t widest = 0;
  size_t drafts = 0;  // times that the head was asked

 private:
  model::Model* inner_;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_TEST_MODEL_H_
