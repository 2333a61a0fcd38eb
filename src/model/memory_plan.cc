#include "model/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "model/config.h"
#include "model/linear_block.h"
#include "model/mla_block.h"
#include "model/short_conv_block.h"
#include "model/skilled_checkpoint.h"
#include "moewe/error.h"

namespace moewe::model {

uint64_t KvBytesPerPosition(const ModelConfig& config, KvType type) {
  return KvPool::BytesPerBlock(config, type) / kBlockTokens;
}

size_t LogitRowsOfStep(const ModelConfig& config, uint32_t chunk) {
  constexpr uint64_t kLogitBytes = uint64_t{64} << 20;
  const uint64_t rows = kLogitBytes / (uint64_t{config.vocab_size} * sizeof(float));
  return static_cast<size_t>(std::clamp<uint64_t>(rows, 1, std::max(1u, chunk)));
}

uint64_t ActivationBytes(const ModelOutline& model, size_t rows, size_t logit_rows) {
  const ModelConfig& config = model.config();
  const uint64_t hidden = config.hidden_size;
  uint64_t q = 0, kv = 0, mix = 0, gate = 0;
  uint64_t mla = 0, mla_once = 0, recurrent = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const AttentionWeights& weights = model.weights().layers[i].attention;
    if (layer.mixer == MixerKind::kMla) {
      mla = std::max(mla, MlaScratch::FloatsPerRow(config.mla, layer.num_heads));
      mla_once = std::max(mla_once, MlaScratch::FloatsOnce(config.mla, layer.num_heads));
      continue;
    }
    if (layer.mixer == MixerKind::kShortConv) recurrent = ShortConvScratch::FloatsPerRow(hidden);
    if (layer.mixer == MixerKind::kGatedDeltaNet || layer.mixer == MixerKind::kKda) {
      recurrent = LinearScratch::FloatsPerRow(config.linear);
    }
    if (IsRecurrent(layer.mixer)) continue;
    q = std::max<uint64_t>(q, weights.q.rows);
    gate = std::max<uint64_t>(gate, weights.output_gate.rows);
    mix = std::max(mix, uint64_t{layer.num_heads} * layer.head_dim);
    kv = std::max(kv, uint64_t{layer.num_kv_heads} * layer.head_dim);
  }
  // Residual stream, its norm and a branch; queries, gates and what is mixed, new keys and values.
  uint64_t floats = 3 * hidden + q + gate + mix + 2 * kv + mla + recurrent;
  for (const Rope& rope : config.ropes) floats += rope.rotary_dim;
  // Gate and up of an FFN, and every chosen expert's output.
  uint64_t ffn = 2 * uint64_t{config.intermediate_size};
  if (config.has_moe) {
    const MoeConfig& moe = config.moe;
    const uint64_t routed = uint64_t{moe.top_k} * (2 * uint64_t{moe.intermediate_size} + 4);
    ffn = std::max({ffn, routed, 2 * uint64_t{moe.shared_intermediate_size}});
    floats += uint64_t{moe.top_k} * hidden + moe.num_experts;
    if (moe.shared_intermediate_size != 0) floats += hidden;
  }
  floats += ffn;
  // A prediction head reads an embedding and a state, and gives a state.
  if (config.mtp_runs) floats += 3 * hidden;
  return sizeof(float) * (rows * floats + logit_rows * config.vocab_size + mla_once);
}

uint64_t LeastStreamedBytes(const ModelOutline& model) {
  const StoredExperts& stored = model.stored();
  if (stored.count == 0) return model.weight_bytes_total();
  return model.trunk_memory() + stored.held_bytes + stored.least_slots * stored.slot_bytes +
         kBytesPerTensor * model.weights().tensors.size();
}

namespace {

class Planner {
 public:
  Planner(const ModelOutline& model, const MemoryRequest& request)
      : model_(model),
        request_(request),
        config_(model.config()),
        usual_(std::min(config_.max_position_embeddings, kDefaultContext)),
        least_(std::min(config_.max_position_embeddings, kLeastContext)) {}

  MemoryPlan Plan() const {
    MemoryPlan resident = Resident();
    if (model_.stored().count == 0) return resident;
    const bool roomy = request_.context != 0 || resident.context >= std::max(least_, usual_ / 4);
    if (!request_.least && roomy && resident.fits()) return resident;
    MemoryPlan streamed = Streamed();
    const bool smaller = streamed.total() < resident.total();
    if (request_.least) return smaller ? streamed : resident;
    if (streamed.fits() != resident.fits()) return streamed.fits() ? streamed : resident;
    return streamed.fits() || smaller ? streamed : resident;
  }

 private:
  // What does not depend on the context and the chunk.
  MemoryPlan Begin() const {
    MemoryPlan plan;
    plan.budget = request_.budget;
    plan.experts = model_.expert_bytes_total();
    plan.tokenizer = kTokenizerFactor * model_.checkpoint().tokenizer_json().size();
    plan.trunk = model_.weight_bytes_total() - plan.experts;
    plan.blended = BlendedBytes(model_.checkpoint());
    plan.skills = request_.skill_reserve;
    plan.program += request_.beside;
    return plan;
  }

  void SetChunk(uint32_t chunk, MemoryPlan* plan) const {
    plan->chunk = std::min(chunk, request_.context != 0 ? request_.context : usual_);
    // Beside a chunk of one sequence's prompt, all others may decode.
    // Drafts are checked while no prompt is computed, beside one token of everybody.
    const size_t widest = std::max<size_t>(plan->chunk, 1 + plan->draft_rows);
    const size_t sequences = std::max<size_t>(request_.sequences, 1);
    const size_t rows = widest + sequences - 1;
    plan->states = StatesFor(sequences, plan->draft_rows > 0) * KvPool::BytesPerState(config_);
    plan->activations =
        ActivationBytes(model_, rows, std::min(request_.logit_rows + plan->draft_rows, rows));
    if (config_.mtp_runs) {
      const uint64_t kept = sequences * (1 + plan->draft_rows) * config_.hidden_size;
      plan->activations += sizeof(float) * (kept + config_.vocab_size);
    }
    if (request_.router != nullptr) {
      plan->skills += ActivationBytes(*request_.router, plan->chunk, 0) +
                      kStatesPerSequence * KvPool::BytesPerState(request_.router->config());
    }
  }

  // Bytes that a block of positions takes in all sequences, and for routing prompts to skills.
  uint64_t KvBlock() const {
    return request_.sequences * KvPool::BytesPerBlock(config_, request_.kv_type);
  }
  uint64_t RouterBlock() const {
    return request_.router == nullptr
               ? 0
               : KvPool::BytesPerBlock(request_.router->config(), KvType::kF32);
  }

  // The context that was asked for, or what `room` bytes hold.
  void SetContext(uint64_t room, MemoryPlan* plan) const {
    plan->context = request_.context;
    if (request_.context == 0) {
      const uint64_t blocks = request_.least ? 0 : room / (KvBlock() + RouterBlock());
      plan->context =
          static_cast<uint32_t>(std::clamp<uint64_t>(blocks * kBlockTokens, least_, usual_));
      plan->shrunk = plan->context < usual_;
    }
    plan->kv = BlocksFor(plan->context) * KvBlock();
    plan->skills += BlocksFor(plan->context) * RouterBlock();
  }

  uint64_t Left(const MemoryPlan& plan) const {
    return plan.budget > plan.total() ? plan.budget - plan.total() : 0;
  }

  MemoryPlan Resident() const {
    if (request_.needs_drafts) return Resident(request_.draft_rows);
    const MemoryPlan plan = Resident(request_.least ? 0 : request_.draft_rows);
    return plan.fits() ? plan : Resident(0);
  }

  MemoryPlan Resident(size_t draft_rows) const {
    MemoryPlan plan = Begin();
    plan.draft_rows = draft_rows;
    SetChunk(request_.chunk != 0 ? request_.chunk : kResidentChunk, &plan);
    SetContext(Left(plan), &plan);
    if (request_.least) plan.budget = plan.total();
    return plan;
  }

  MemoryPlan Streamed() const {
    if (request_.chunk != 0) return Streamed(request_.chunk);
    if (request_.least) return Streamed(kLeastStreamedChunk);
    for (uint32_t chunk = kStreamedChunk; chunk > kLeastStreamedChunk; chunk /= 2) {
      const MemoryPlan plan = Streamed(chunk);
      if (plan.fits() && plan.activations <= (plan.activations + plan.kv + plan.arena) / 5) {
        return plan;
      }
    }
    return Streamed(kLeastStreamedChunk);
  }

  MemoryPlan Streamed(uint32_t chunk) const {
    const StoredExperts& stored = model_.stored();
    MemoryPlan plan = Begin();
    plan.streamed = true;
    plan.trunk = model_.trunk_memory();
    plan.held = stored.held_bytes;
    plan.skills = request_.streamed_skill_reserve;
    plan.least_slots = stored.least_slots;
    if (request_.router != nullptr) {
      plan.skills += kReaderBytes + LeastStreamedBytes(*request_.router);
    }
    plan.program += kReaderBytes + kBytesPerTensor * model_.weights().tensors.size() +
                    request_.budget / kPageTablePart;
    SetChunk(chunk, &plan);
    const uint64_t least = stored.least_slots * stored.slot_bytes;
    const uint64_t all = stored.count * stored.slot_bytes;
    const uint64_t room = Left(plan);
    const uint64_t wanted = std::min(all, std::max(2 * least, room / 2));
    SetContext(room > wanted ? room - wanted : 0, &plan);
    plan.slots = std::clamp(request_.least ? 0 : Left(plan) / stored.slot_bytes, stored.least_slots,
                            stored.count);
    plan.arena = plan.slots * stored.slot_bytes;
    if (request_.least) {
      // Page tables are a part of the budget, whose other parts are known now.
      plan.program += (plan.total() - 1) / (kPageTablePart - 1);
      plan.budget = plan.total();
    }
    return plan;
  }

  const ModelOutline& model_;
  const MemoryRequest& request_;
  const ModelConfig& config_;
  const uint32_t usual_;  // context if memory is plenty and nobody asks for more
  const uint32_t least_;
};

// How much of the budget experts take, and of what.
std::string ExpertsText(const MemoryPlan& plan) {
  if (!plan.streamed) return FormatSize(plan.experts);
  return fmt::format("{} (room for {} of {}, the least that works)",
                     FormatSize(plan.arena + plan.held), plan.slots, FormatSize(plan.experts));
}

}  // namespace

MemoryPlan PlanMemory(const ModelOutline& model, const MemoryRequest& request) {
  const uint32_t longest = model.config().max_position_embeddings;
  if (request.context > longest) {
    throw Error(ErrorCode::kUsage, fmt::format("--ctx {} is more than the model's {} positions",
                                               request.context, longest));
  }
  return Planner(model, request).Plan();
}

void RequireFit(const MemoryPlan& plan, const std::string& file) {
  if (plan.fits()) return;
  throw Error(
      ErrorCode::kOutOfBudget,
      fmt::format(
          "{} are needed, {} more than the budget of {}: trunk {}, experts {}{}, KV cache "
          "{} ({} positions){}, activations {}, tokenizer {}, program {}",
          FormatSize(plan.total()), FormatSize(plan.total() - plan.budget), FormatSize(plan.budget),
          FormatSize(plan.trunk), ExpertsText(plan),
          plan.skills == 0 ? "" : ", skills " + FormatSize(plan.skills), FormatSize(plan.kv),
          plan.context, plan.states == 0 ? "" : ", recurrent states " + FormatSize(plan.states),
          FormatSize(plan.activations), FormatSize(plan.tokenizer), FormatSize(plan.program)),
      {file, "--memory", {}});
}

}  // namespace moewe::model
