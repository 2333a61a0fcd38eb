#include "convert/smoe_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "formats/cmf/cmf_file.h"
#include "formats/smoe/smoe_vault.h"
#include "model/canonical.h"
#include "model/config_smoe.h"
#include "model/name_parts.h"
#include "model/weights.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::convert {
namespace {

using formats::TensorView;
namespace smoe = formats::smoe;

[[noreturn]] void Refuse(const formats::Checkpoint& source, const std::string& message) {
  throw Error(ErrorCode::kUnsupported, message, {source.files().front(), ""});
}

void CheckConfig(const formats::Checkpoint& source, const model::ModelConfig& config, bool plain) {
  if (!config.has_moe) Refuse(source, "no MoE expert layers: a vault holds experts");
  if (config.gate_function != kernels::GateFunction::kSilu) {
    Refuse(source, "hidden_act: a vault's experts are SwiGLU, gated by SiLU");
  }
  if (config.moe.top_k > smoe::kMaxTopK) {
    Refuse(source,
           fmt::format("{} experts a token; a vault allows {}", config.moe.top_k, smoe::kMaxTopK));
  }
  if (config.moe.top_k > config.moe.num_experts) {
    Refuse(source, fmt::format("num_experts_per_tok is {}, of {} experts", config.moe.top_k,
                               config.moe.num_experts));
  }
  for (const model::LayerConfig& layer : config.layers) {
    if (layer.head_dim <= smoe::kMaxHeadDim && layer.head_dim % 2 == 0) continue;
    Refuse(source, fmt::format("head_dim {}; a vault allows even ones up to {}", layer.head_dim,
                               smoe::kMaxHeadDim));
  }
  std::string reason;
  if (plain && !model::ArchBlockHolds(config, &reason)) {
    Refuse(source,
           fmt::format("the arch block cannot express {}; without --plain-scout the Scout says it",
                       reason));
  }
}

// layer, expert, projection of an expert's matrix.
std::optional<std::tuple<uint32_t, uint32_t, size_t>> ExpertOf(std::string_view name) {
  const auto layer = model::EatNumbered(&name, "model.layers.");
  if (!layer) return {};
  const auto expert = model::EatNumbered(&name, ".mlp.experts.");
  if (!expert || !model::Eat(&name, ".")) return {};
  for (size_t i = 0; i < smoe::kProjections.size(); ++i) {
    if (name == std::string(smoe::kProjections[i]) + ".weight")
      return std::tuple(*layer, *expert, i);
  }
  return {};
}

// The source's own name where a Scout may have it: canonical, or DeepSeek's plural.
std::string ScoutName(const formats::Checkpoint& source, const std::string& canonical) {
  constexpr std::string_view kSingular = ".shared_expert.";
  if (const size_t at = canonical.find(kSingular); at != std::string::npos) {
    std::string plural = canonical;
    plural.replace(at, kSingular.size(), ".shared_experts.");
    if (source.Find(plural) != nullptr) return plural;
  }
  return canonical;
}

void AddScoutTensor(const formats::Checkpoint& source, const TensorView& tensor, SmoePlan* plan,
                    std::vector<std::string>* widened) {
  ScoutTensor added;
  added.source = tensor;
  const bool stays =
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBf16;
  if (!stays) widened->push_back(tensor.name);
  const DType dtype = stays ? tensor.dtype : DType::kF32;
  added.target = {ScoutName(source, tensor.name), dtype, tensor.shape,
                  quant::FindCodec(dtype)->encoded_size(tensor.matrix()).value()};
  plan->scout.push_back(std::move(added));
}

void Divide(const formats::Checkpoint& source, SmoePlan* plan) {
  std::map<std::pair<uint32_t, uint32_t>, std::array<TensorView, 3>> experts;
  std::vector<std::string> widened;
  uint64_t prediction = 0;
  for (const TensorView& tensor : model::CanonicalTensors(source, plan->config, &plan->warnings)) {
    if (const auto place = ExpertOf(tensor.name)) {
      const auto& [layer, expert, projection] = *place;
      experts[{layer, expert}][projection] = tensor;
    } else if (tensor.name.starts_with("model.mtp.")) {
      ++prediction;
    } else {
      AddScoutTensor(source, tensor, plan, &widened);
    }
  }
  // A head that repeats the embedding is no part of the model, but of the Scout.
  const TensorView* head = source.Find("lm_head.weight");
  if (plan->config.tie_word_embeddings && head != nullptr) {
    AddScoutTensor(source, *head, plan, &widened);
  }
  for (auto& [id, matrices] : experts) {
    plan->experts.push_back({id.first, id.second, static_cast<uint32_t>(matrices[0].shape[0])});
    plan->matrices.push_back(std::move(matrices));
  }
  std::sort(plan->scout.begin(), plan->scout.end(), [](const ScoutTensor& a, const ScoutTensor& b) {
    return formats::SafetensorsOrder(a.target, b.target);
  });
  if (!widened.empty()) {
    plan->notes.push_back(
        fmt::format("a Scout holds no quantized tensors, written as f32: {}{}", widened.front(),
                    widened.size() == 1 ? "" : fmt::format(" and {} more", widened.size() - 1)));
  }
  if (prediction > 0) {
    plan->warnings.push_back(fmt::format(
        "a vault has no place for the prediction head: {} tensors were left out", prediction));
  }
}

void WarnOfCmfParts(const formats::Checkpoint& source, SmoePlan* plan) {
  const auto* file = dynamic_cast<const formats::CmfFile*>(&source);
  if (file == nullptr) return;
  const auto skills = source.config().find("skills");
  if (skills != source.config().end() && skills->is_array() && !skills->empty()) {
    plan->warnings.emplace_back("a vault has no place for skills: left out");
  }
  if (!file->contents().masks.masks.empty()) {
    plan->warnings.emplace_back("a vault has no place for task masks: left out");
  }
}

}  // namespace

smoe::ArchBlock ArchBlockOf(const model::ModelConfig& config, const nlohmann::ordered_json& json) {
  const model::LayerConfig& layer = config.layers.front();
  smoe::ArchBlock arch;
  if (config.moe.norm_topk_prob) arch.flags = smoe::kNormTopk;
  arch.rope_theta = static_cast<float>(config.ropes.front().theta);
  arch.num_heads = layer.num_heads;
  arch.num_kv_heads = layer.num_kv_heads;
  arch.head_dim = layer.head_dim;
  arch.moe_top_k = config.moe.top_k;
  arch.moe_ffn_dim = config.moe.intermediate_size;
  arch.dense_ffn_dim = config.intermediate_size;
  arch.shared_expert_ffn_dim = config.moe.shared_intermediate_size;
  // Existing vaults of families that state the width instead of a number of experts say 0 here.
  if (json.is_object() && json.contains("shared_expert_intermediate_size")) {
    arch.shared_expert_ffn_dim = 0;
  }
  arch.num_hidden_layers = config.num_layers;
  arch.rms_norm_eps = config.rms_norm_eps;
  const auto type = json.is_object() ? json.find("model_type") : json.end();
  const bool named =
      json.is_object() && type != json.end() && type->is_string() && !json.contains("text_config");
  arch.model_type = named ? type->get<std::string>() : config.arch_name;
  return arch;
}

SmoePlan PlanSmoe(const formats::Checkpoint& source, bool plain_scout) {
  SmoePlan plan;
  plan.config = model::ReadConfig(source);
  plan.warnings = plan.config.warnings.list;
  plan.config.warnings.list.clear();
  plan.config.mtp_layers = 0;
  CheckConfig(source, plan.config, plain_scout);
  model::BindWeights(source, plan.config, model::TensorHashes::kIgnore);
  Divide(source, &plan);
  if (plan.experts.empty()) Refuse(source, "no MoE expert layers: a vault holds experts");
  WarnOfCmfParts(source, &plan);
  if (source.kind() == formats::CheckpointKind::kSmoe) {
    const auto& vault = static_cast<const formats::SmoeVault&>(source);
    plan.arch = vault.tables().arch ? *vault.tables().arch : vault.geometry().arch;
  } else {
    const bool folder = source.kind() == formats::CheckpointKind::kHuggingFace;
    plan.arch = ArchBlockOf(plan.config, folder ? source.config() : nlohmann::ordered_json());
  }
  const auto scout_has = [&](const char* name) {
    return std::any_of(plan.scout.begin(), plan.scout.end(),
                       [&](const ScoutTensor& tensor) { return tensor.target.name == name; });
  };
  plan.arch.Set(smoe::kHasQkNorm, scout_has("model.layers.0.self_attn.q_norm.weight"));
  plan.arch.Set(smoe::kHasDenseLayer0, scout_has("model.layers.0.mlp.gate_proj.weight"));
  plan.arch_json = model::ToCmfArch(plan.config).dump();
  return plan;
}

}  // namespace moewe::convert
