#include "model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "kernels/vector_ops.h"
#include "model/token_bytes.h"
#include "model/trunk_memory.h"
#include "moewe/error.h"
#include "platform/mapped_pages.h"

namespace moewe::model {

namespace {

// The hashes that binding a model's weights checks; experts' follow when they are first used.
TensorHashes HashesAtLoad(const LoadOptions& options) {
  return options.verify == Verify::kLazy && !options.backbone_verified
             ? TensorHashes::kVerifyAllButExperts
             : TensorHashes::kIgnore;
}

// Those of what was read into memory, which nobody has checked before.
TensorHashes HashesOfCopy(const LoadOptions& options) {
  return options.verify == Verify::kNone ? TensorHashes::kIgnore
                                         : TensorHashes::kVerifyAllButExperts;
}

}  // namespace

std::unique_ptr<Transformer> Transformer::Load(
    std::shared_ptr<const formats::Checkpoint> checkpoint, ModelConfig config, TaskMask mask,
    const LoadOptions& options, ThreadPool* pool) {
  if (!options.stream) {
    Weights weights = BindWeights(*checkpoint, config, HashesAtLoad(options));
    return std::make_unique<Transformer>(std::move(checkpoint), std::move(config),
                                         std::move(weights), std::move(mask), options, pool,
                                         nullptr);
  }
  Weights found = BindWeights(*checkpoint, config, TensorHashes::kIgnore, BytesToRead::kNone);
  std::shared_ptr<TrunkMemory> trunk = options.stream->trunk;
  if (trunk == nullptr) trunk = std::make_shared<TrunkMemory>();
  trunk->Hold(
      *checkpoint, found.uses, [&] { return OpenReader(*options.stream, checkpoint->files(), {}); },
      &found.tensors);
  Weights weights = BindTensors(*checkpoint, config, std::move(found.tensors),
                                HashesOfCopy(options), BytesToRead::kTrunk);
  return std::make_unique<Transformer>(std::move(checkpoint), std::move(config), std::move(weights),
                                       std::move(mask), options, pool, std::move(trunk));
}

Transformer::Transformer(std::shared_ptr<const formats::Checkpoint> checkpoint, ModelConfig config,
                         Weights weights, TaskMask mask, const LoadOptions& options,
                         ThreadPool* pool, std::shared_ptr<const void> trunk)
    : checkpoint_(std::move(checkpoint)),
      trunk_(std::move(trunk)),
      config_(std::move(config)),
      weights_(std::move(weights)),
      mask_(std::move(mask)),
      bytes_per_token_(WeightBytesPerToken(weights_, config_, mask_)),
      compute_(pool, options.activations) {
  const bool verify_experts = options.verify == Verify::kLazy;
  if (options.stream) {
    // With kFull whoever loads has them all verified by the stream.
    stream_ = std::make_unique<ExpertStream>(*checkpoint_, config_, weights_, *options.stream,
                                             options.verify != Verify::kNone, pool);
  }
  static const LayerMask kWhole;
  visits_.reserve(config_.num_visits());
  for (uint32_t i = 0; i < config_.num_visits(); ++i) {
    const LayerMask& masked = mask_.visits.empty() ? kWhole : mask_.visits[i];
    visits_.push_back(MakeLayer(static_cast<int>(i), weights_.layers[i % config_.num_layers],
                                masked, verify_experts));
  }
  if (weights_.mtp) {
    mtp_.emplace(MakeLayer(static_cast<int>(config_.num_visits()), weights_.mtp->layer, kWhole,
                           verify_experts));
  }
  LinkBlocks();
  for (const Rope& rope : config_.ropes) ropes_.emplace_back(&rope);
}

Transformer::Layer Transformer::MakeLayer(int visit, const LayerWeights& weights,
                                          const LayerMask& masked, bool verify_experts) {
  Mixer mixer = MakeMixer(visit, weights, masked);
  if (!weights.is_moe) {
    return {&weights, masked.live, std::move(mixer), DenseFfnBlock(config_, weights.ffn, masked)};
  }
  return {&weights, masked.live, std::move(mixer),
          MoeBlock(visit, config_, weights_, weights, masked, *checkpoint_, verify_experts,
                   stream_.get(), &moe_scratch_)};
}

Transformer::Mixer Transformer::MakeMixer(int visit, const LayerWeights& layer,
                                          const LayerMask& masked) {
  switch (config_.LayerOfVisit(static_cast<uint32_t>(visit)).mixer) {
    case MixerKind::kMla:
      return MlaBlock(visit, config_, layer.mla, masked, &mla_scratch_);
    case MixerKind::kGatedDeltaNet:
    case MixerKind::kKda:
      return LinearBlock(visit, config_, layer.linear, &linear_scratch_);
    case MixerKind::kShortConv:
      return ShortConvBlock(visit, config_, layer.short_conv, &short_conv_scratch_);
    case MixerKind::kAttention:
      break;
  }
  return AttentionBlock(visit, config_, layer.attention, masked, &attention_scratch_);
}

// Each MoE block to the one that runs after it.
void Transformer::LinkBlocks() {
  MoeBlock* next = nullptr;
  for (size_t i = visits_.size(); i-- > 0;) {
    auto* block = std::get_if<MoeBlock>(&visits_[i].ffn);
    if (block == nullptr || !visits_[i].live) continue;
    block->SetNext(next);
    next = block;
  }
}

void Transformer::VerifyStreamed(const formats::Checkpoint& file) {
  stream_->VerifyAll();
  std::set<std::pair<uint32_t, uint64_t>> verified;  // places
  for (size_t i = 0; i < weights_.tensors.size(); ++i) {
    const formats::TensorView& tensor = weights_.tensors[i];
    if (weights_.uses[i] == TensorUse::kNone || tensor.hash == 0) continue;
    verified.emplace(tensor.file_index, tensor.file_offset);
  }
  for (const formats::TensorView& tensor : file.tensors()) {
    if (tensor.hash == 0 || verified.contains({tensor.file_index, tensor.file_offset})) continue;
    VerifyTensor(file, tensor);
    DropPages(tensor.bytes);
  }
}

void Transformer::Forward(std::span<const SequenceChunk> chunks, std::vector<float>* logits,
                          ForwardObserver* observer) {
  Check(chunks);
  Prepare(chunks);
  if (rows_.empty()) return;
  const Step step{&compute_, rows_, sequences_, first_rows_, ropes_, observer, hidden_};
  const bool all_rows = observer != nullptr || mtp_;
  Embed(chunks);
  if (observer != nullptr) observer->OnHidden(-1, hidden_, rows_.size());
  for (uint32_t i = 0; i < config_.num_visits(); ++i) {
    // The last pass is followed by the head, which has this norm itself.
    if (config_.loop_final_norm && i > 0 && i % config_.num_layers == 0) {
      Norm(hidden_, weights_.final_norm, rows_.size(), hidden_);
    }
    const int visit = static_cast<int>(i);
    RunMixer(visits_[i], visit, step, hidden_);
    // Behind the last mixer only logits are to come, if nobody reads all states.
    if (i + 1 == config_.num_visits() && !all_rows) KeepWanted(chunks);
    Step rest = step;
    rest.rows = rows_;
    if (!rows_.empty()) RunFfn(visits_[i], visit, rest, hidden_);
  }
  if (mtp_) FeedMtp(chunks, step);
  if (observer != nullptr) {
    Norm(hidden_, weights_.final_norm, rows_.size(), normed_);
    observer->OnFinalNorm(normed_, rows_.size());
  }
  if (all_rows) KeepWanted(chunks);
  Head(logits);
  for (const SequenceChunk& chunk : chunks) chunk.sequence->Commit(chunk.tokens.size());
}

void Transformer::Check(std::span<const SequenceChunk> chunks) const {
  for (size_t c = 0; c < chunks.size(); ++c) {
    for (size_t other = 0; other < c; ++other) {
      if (chunks[other].sequence == chunks[c].sequence) {
        throw Error(ErrorCode::kUsage, "a sequence appears twice in one step");
      }
    }
    for (TokenId token : chunks[c].tokens) {
      if (token < 0 || static_cast<uint32_t>(token) >= config_.vocab_size) {
        throw Error(ErrorCode::kUsage, fmt::format("token id {} is outside of the vocabulary of {}",
                                                   token, config_.vocab_size));
      }
    }
  }
}

void Transformer::Prepare(std::span<const SequenceChunk> chunks) {
  rows_.clear();
  sequences_.clear();
  first_rows_.clear();
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    Sequence& sequence = *chunks[c].sequence;
    sequence.Reserve(chunks[c].tokens.size());
    sequences_.push_back(&sequence);
    first_rows_.push_back(rows_.size());
    for (size_t t = 0; t < chunks[c].tokens.size(); ++t) {
      rows_.push_back({c, static_cast<uint32_t>(sequence.length() + t)});
    }
  }
  first_rows_.push_back(rows_.size());
  PrepareRows();
}

void Transformer::PrepareRows() {
  const size_t n = rows_.size();
  hidden_ = hidden_scratch_.Need(n * config_.hidden_size);
  normed_ = normed_scratch_.Need(n * config_.hidden_size);
  branch_ = branch_scratch_.Need(n * config_.hidden_size);
  for (RopeTable& rope : ropes_) {
    rope.Resize(n);
    ForRows(compute_.pool(), n, [&](size_t row) { rope.Fill(row, rows_[row].position); });
  }
}

void Transformer::Embed(std::span<const SequenceChunk> chunks) {
  const size_t hidden = config_.hidden_size;
  ForRows(compute_.pool(), rows_.size(), [&](size_t row) {
    const SequenceChunk& chunk = chunks[rows_[row].chunk];
    const TokenId token = chunk.tokens[rows_[row].position - chunk.sequence->length()];
    EmbedToken(token, hidden_ + row * hidden);
  });
}

void Transformer::EmbedToken(TokenId token, float* out) const {
  kernels::Compute::DecodeRow(weights_.embed, static_cast<uint64_t>(token), out);
  if (config_.embed_multiplier == 1.0f) return;
  for (size_t i = 0; i < config_.hidden_size; ++i) out[i] *= config_.embed_multiplier;
}

void Transformer::RunMixer(Layer& layer, int visit, const Step& step, float* hidden) {
  if (!layer.live) return;
  if (auto* moe = std::get_if<MoeBlock>(&layer.ffn)) moe->Foresee(step);
  Norm(hidden, layer.weights->attention_norm, rows_.size(), normed_);
  std::visit([&](auto& block) { block.Run(step, normed_, branch_); }, layer.mixer);
  if (step.observer != nullptr) step.observer->OnAttention(visit, branch_, rows_.size());
  AddBranch(layer.weights->attention_post_norm, hidden);
}

void Transformer::RunFfn(Layer& layer, int visit, const Step& step, float* hidden) {
  const size_t n = rows_.size();
  if (layer.live) {
    Norm(hidden, layer.weights->ffn_norm, n, normed_);
    std::visit([&](auto& block) { block.Run(step, normed_, branch_); }, layer.ffn);
    if (step.observer != nullptr) step.observer->OnFfn(visit, branch_, n);
    AddBranch(layer.weights->ffn_post_norm, hidden);
  }
  if (step.observer != nullptr) step.observer->OnHidden(visit, hidden, n);
}

void Transformer::KeepWanted(std::span<const SequenceChunk> chunks) {
  const size_t hidden = config_.hidden_size;
  size_t kept = 0;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const SequenceChunk& chunk = chunks[rows_[row].chunk];
    const bool last = rows_[row].position + 1 == chunk.sequence->length() + chunk.tokens.size();
    if (chunk.logits == SequenceChunk::Logits::kNone) continue;
    if (chunk.logits == SequenceChunk::Logits::kLast && !last) continue;
    if (kept != row) {
      rows_[kept] = rows_[row];
      std::memcpy(hidden_ + kept * hidden, hidden_ + row * hidden, hidden * sizeof(float));
    }
    ++kept;
  }
  rows_.resize(kept);
}

void Transformer::AddBranch(const std::vector<float>& post_norm, float* hidden) {
  const size_t width = config_.hidden_size;
  ForRows(compute_.pool(), rows_.size(), [&](size_t row) {
    float* branch = branch_ + row * width;
    if (!post_norm.empty()) {
      kernels::RmsNorm(branch, post_norm.data(), config_.norm_weight_offset, config_.rms_norm_eps,
                       width, branch);
    }
    kernels::AddScaled(hidden + row * width, branch, config_.residual_multiplier, width);
  });
}

void Transformer::Norm(const float* x, const std::vector<float>& weight, size_t rows, float* out) {
  const size_t hidden = config_.hidden_size;
  ForRows(compute_.pool(), rows, [&](size_t row) {
    kernels::RmsNorm(x + row * hidden, weight.data(), config_.norm_weight_offset,
                     config_.rms_norm_eps, hidden, out + row * hidden);
  });
}

// Final norm and output head, for the rows whose logits are asked for.
void Transformer::Head(std::vector<float>* logits) {
  const size_t wanted = rows_.size();
  if (wanted == 0) return;
  const size_t vocab = config_.vocab_size;
  Norm(hidden_, weights_.final_norm, wanted, normed_);
  const size_t old_size = logits->size();
  logits->resize(old_size + wanted * vocab);
  float* out = logits->data() + old_size;
  const kernels::Projection head{weights_.lm_head, nullptr, out, vocab};
  compute_.Project({&head, 1}, normed_, wanted, config_.hidden_size);
  if (config_.logit_multiplier == 1.0f && config_.final_soft_cap == 0.0f) return;
  ForRows(compute_.pool(), wanted, [&](size_t r) {
    float* x = out + r * vocab;
    if (config_.logit_multiplier != 1.0f) {
      for (size_t i = 0; i < vocab; ++i) x[i] *= config_.logit_multiplier;
    }
    if (config_.final_soft_cap != 0.0f) kernels::SoftCap(x, config_.final_soft_cap, vocab);
  });
}

}  // namespace moewe::model
