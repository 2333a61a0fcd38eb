// The forward pass: embedding, layers, final norm and output head over a batch of sequences'
// chunks.
#ifndef MOEWE_MODEL_TRANSFORMER_H_
#define MOEWE_MODEL_TRANSFORMER_H_

#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "model/attention_block.h"
#include "model/expert_stream.h"
#include "model/ffn_block.h"
#include "model/linear_block.h"
#include "model/mla_block.h"
#include "model/model.h"
#include "model/short_conv_block.h"
#include "model/step.h"
#include "model/task_mask.h"
#include "model/weights.h"

namespace moewe::model {

class Transformer : public Model {
 public:
  // Binds the tensors of `checkpoint`: with options.stream the trunk is read into memory and routed
  // experts are streamed, else everything is used where it is mapped. Throws as Model::Load.
  static std::unique_ptr<Transformer> Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                           ModelConfig config, TaskMask mask,
                                           const LoadOptions& options, ThreadPool* pool);

  // `trunk`: what tensors of `weights` point into, if that is not the checkpoint.
  Transformer(std::shared_ptr<const formats::Checkpoint> checkpoint, ModelConfig config,
              Weights weights, TaskMask mask, const LoadOptions& options, ThreadPool* pool,
              std::shared_ptr<const void> trunk);

  const ModelConfig& config() const override { return config_; }
  const formats::Checkpoint& checkpoint() const override { return *checkpoint_; }
  uint64_t weight_bytes_per_token() const override { return bytes_per_token_; }
  uint64_t weight_bytes_total() const override { return weights_.bytes_total; }
  uint64_t expert_bytes_total() const override { return weights_.expert_bytes; }

  // Every tensor of `file`, the one that the checkpoint is a view of: hashes of the trunk were
  // checked in memory, experts are streamed through once, the rest is read from the mapping and
  // given back. Throws Error{kHashMismatch}, and as Forward.
  void VerifyStreamed(const formats::Checkpoint& file);

  std::span<const formats::TensorView> tensors() const override { return weights_.tensors; }
  bool Idle() override { return stream_ && stream_->Idle(); }
  std::optional<StreamStats> stream_stats() const override {
    return stream_ ? std::optional(stream_->stats()) : std::nullopt;
  }
  Bytes stream_memory() const override { return stream_ ? stream_->memory() : Bytes(); }
  std::span<const std::vector<experts::StoredExpert>> streamed_experts() const override {
    if (!stream_) return {};
    return stream_->stored();
  }

  void Forward(std::span<const SequenceChunk> chunks, std::vector<float>* logits,
               ForwardObserver* observer) override;
  bool has_draft_head() const override { return weights_.mtp.has_value(); }
  size_t Draft(Sequence* sequence, TokenId token, std::span<TokenId> out,
               std::vector<float>* logits) override;

 private:
  using Mixer = std::variant<AttentionBlock, MlaBlock, LinearBlock, ShortConvBlock>;
  // What one visit of a layer is, decided at load.
  struct Layer {
    const LayerWeights* weights;
    bool live;  // false: a task mask leaves the layer out
    Mixer mixer;
    std::variant<DenseFfnBlock, MoeBlock> ffn;
  };

  Mixer MakeMixer(int visit, const LayerWeights& layer, const LayerMask& masked);
  Layer MakeLayer(int visit, const LayerWeights& weights, const LayerMask& masked,
                  bool verify_experts);
  void Check(std::span<const SequenceChunk> chunks) const;
  // Rows, sequences and rope tables of the batch; room in the sequences.
  void Prepare(std::span<const SequenceChunk> chunks);
  void PrepareRows();  // scratch and rope tables of rows_
  void Embed(std::span<const SequenceChunk> chunks);
  void EmbedToken(TokenId token, float* out) const;
  // Both parts of a layer; a step of fewer rows may follow the first.
  void RunMixer(Layer& layer, int visit, const Step& step, float* hidden);
  void RunFfn(Layer& layer, int visit, const Step& step, float* hidden);
  // The rows whose logits are asked for move to the front of the residual stream, the others go.
  void KeepWanted(std::span<const SequenceChunk> chunks);
  // hidden += multiplier * norm(branch)
  void AddBranch(const std::vector<float>& post_norm, float* hidden);
  void Norm(const float* x, const std::vector<float>& weight, size_t rows, float* out);
  // Final norm and output head of all rows that are left.
  void Head(std::vector<float>* logits);

  // The prediction head (transformer_mtp.cc).
  void FeedMtp(std::span<const SequenceChunk> chunks, const Step& step);
  // joined_ row `row`: the token's embedding and a hidden state (null = zeros), both normed.
  void JoinRow(size_t row, TokenId token, const float* hidden);

  void LinkBlocks();

  const std::shared_ptr<const formats::Checkpoint> checkpoint_;
  const std::shared_ptr<const void> trunk_;
  const ModelConfig config_;
  const Weights weights_;
  const TaskMask mask_;
  const uint64_t bytes_per_token_;
  kernels::Compute compute_;
  std::unique_ptr<ExpertStream> stream_;  // null: all experts are in memory

  AttentionScratch attention_scratch_;
  MlaScratch mla_scratch_;
  LinearScratch linear_scratch_;
  ShortConvScratch short_conv_scratch_;
  MoeScratch moe_scratch_;
  std::vector<Layer> visits_;  // pass-major, num_loops * num_layers
  std::optional<Layer> mtp_;   // of ModelConfig::mtp_runs

  // Of the step that runs.
  std::vector<StepRow> rows_;
  std::vector<Sequence*> sequences_;
  std::vector<size_t> first_rows_;
  std::vector<RopeTable> ropes_;
  Scratch<float> hidden_scratch_, normed_scratch_, branch_scratch_;
  Scratch<float> joined_scratch_, mtp_hidden_scratch_, mtp_logits_;
  float* joined_ = nullptr;  // [rows, 2 * hidden]
  float* hidden_ = nullptr;  // [rows, hidden]: the residual stream
  float* normed_ = nullptr;
  float* branch_ = nullptr;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_TRANSFORMER_H_
