#include "model/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "model/config.h"
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

uint64_t ActivationBytes(const ModelConfig& config, size_t rows, size_t logit_rows) {
  const uint64_t hidden = config.hidden_size;
  uint64_t q = 0, kv = 0;
  for (const LayerConfig& layer : config.layers) {
    q = std::max(q, uint64_t{layer.num_heads} * layer.head_dim);
    kv = std::max(kv, uint64_t{layer.num_kv_heads} * layer.head_dim);
  }
  // Residual stream, its norm and a branch; queries and their mix, new keys and values.
  uint64_t floats = 3 * hidden + 2 * q + 2 * kv;
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
  return sizeof(float) * (rows * floats + logit_rows * config.vocab_size);
}

MemoryPlan PlanMemory(const Model& model, const MemoryRequest& request) {
  const ModelConfig& config = model.config();
  const uint32_t longest = config.max_position_embeddings;
  if (request.context > longest) {
    throw Error(ErrorCode::kUsage, fmt::format("--ctx {} is more than the model's {} positions",
                                               request.context, longest));
  }
  MemoryPlan plan;
  plan.experts = model.expert_bytes_total();
  plan.tokenizer = kTokenizerFactor * model.checkpoint().tokenizer_json().size();
  plan.trunk = model.weight_bytes_total() - plan.experts;
  plan.blended = BlendedBytes(model.checkpoint());
  plan.skills = request.skill_reserve;
  const uint64_t block = request.sequences * KvPool::BytesPerBlock(config, request.kv_type);
  const uint64_t router_block =
      request.router == nullptr ? 0 : KvPool::BytesPerBlock(*request.router, KvType::kF32);
  const uint32_t usual = std::min(longest, kDefaultContext);
  plan.context = request.context != 0 ? request.context : usual;
  const uint32_t rows = std::min(request.chunk, plan.context);
  plan.activations = ActivationBytes(config, rows, request.logit_rows);
  if (request.router != nullptr) plan.skills += ActivationBytes(*request.router, rows, 0);
  const uint64_t fixed = plan.total();
  if (request.context == 0) {
    const uint32_t least = std::min(longest, kLeastContext);
    const uint64_t room =
        request.budget > fixed ? (request.budget - fixed) / (block + router_block) : 0;
    const uint64_t positions = request.least ? 0 : room * kBlockTokens;
    plan.context = static_cast<uint32_t>(std::clamp<uint64_t>(positions, least, usual));
    plan.shrunk = plan.context < usual;
  }
  plan.kv = BlocksFor(plan.context) * block;
  plan.skills += BlocksFor(plan.context) * router_block;
  plan.budget = request.least ? plan.total() : request.budget;
  return plan;
}

void RequireFit(const MemoryPlan& plan, const std::string& file) {
  if (plan.fits()) return;
  throw Error(
      ErrorCode::kOutOfBudget,
      fmt::format("{} are needed, but the budget is {}: trunk {}, experts {}{}, KV cache {} ({} "
                  "positions), activations {}, tokenizer {}, program {}",
                  FormatSize(plan.total()), FormatSize(plan.budget), FormatSize(plan.trunk),
                  FormatSize(plan.experts),
                  plan.skills == 0 ? "" : ", skills " + FormatSize(plan.skills),
                  FormatSize(plan.kv), plan.context, FormatSize(plan.activations),
                  FormatSize(plan.tokenizer), FormatSize(plan.program)),
      {file, "--memory", {}});
}

}  // namespace moewe::model
