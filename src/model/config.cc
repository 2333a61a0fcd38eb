#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/smoe/smoe_vault.h"
#include "model/config_limits.h"
#include "model/config_smoe.h"
#include "model/rope_config.h"
#include "platform/mapped_pages.h"

namespace moewe::model {

void AssignRopes(const Rope& global, const Rope& local, ModelConfig* config) {
  for (LayerConfig& layer : config->layers) {
    const Rope& rope = layer.sliding_window != 0 ? local : global;
    size_t index = 0;
    while (index < config->ropes.size() && !(config->ropes[index] == rope)) ++index;
    if (index == config->ropes.size()) config->ropes.push_back(rope);
    layer.rope = static_cast<uint32_t>(index);
  }
}

namespace {

// Looks at mapped bytes once, piece by piece: a model that is streamed has no room for two matrices
// of its vocabulary beside their copy.
bool SameBytes(Bytes a, Bytes b) {
  constexpr size_t kPiece = size_t{4} << 20;
  if (a.size() != b.size()) return false;
  for (size_t at = 0; at < a.size(); at += kPiece) {
    const size_t size = std::min(kPiece, a.size() - at);
    const Bytes left = a.subspan(at, size);
    const Bytes right = b.subspan(at, size);
    const bool same = std::ranges::equal(left, right);
    ForgetPages(left);
    ForgetPages(right);
    if (!same) return false;
  }
  return true;
}

// transformers ties the head only if it is absent or repeats the embedding, whatever the config
// says.
void UntieDifferingHead(const formats::Checkpoint& checkpoint, ModelConfig* config) {
  if (!config->tie_word_embeddings) return;
  const auto find = [&](std::initializer_list<const char*> names) {
    const formats::TensorView* found = nullptr;
    for (const char* name : names) {
      if (found == nullptr) found = checkpoint.Find(name);
    }
    return found;
  };
  const auto* head = find({"lm_head.weight", "language_model.lm_head.weight"});
  const auto* embedding =
      find({"model.embed_tokens.weight", "language_model.model.embed_tokens.weight",
            "model.language_model.embed_tokens.weight"});
  if (head == nullptr || embedding == nullptr) return;
  if (head->dtype == embedding->dtype && SameBytes(head->bytes, embedding->bytes)) return;
  config->tie_word_embeddings = false;
  config->warnings.list.push_back(
      "the config ties lm_head to the embedding, but both are there and differ: they were not "
      "tied");
}

// The rows of a projection of the first layer, 0 if it has another name or shape.
uint64_t RowsOf(const formats::Checkpoint& checkpoint, const char* role) {
  const auto* tensor =
      checkpoint.Find(fmt::format("model.layers.0.self_attn.{}_proj.weight", role));
  return tensor != nullptr && tensor->shape.size() == 2 ? tensor->shape[0] : 0;
}

// A config that leaves out how many KV heads there are means the family's default, unless keys have
// as many rows as queries: then each query head has its own.
ModelConfig FromHuggingFace(const formats::Checkpoint& checkpoint, const std::string& file) {
  const nlohmann::ordered_json& json = checkpoint.config();
  const uint64_t q_rows = RowsOf(checkpoint, "q");
  const bool open = json.is_object() && q_rows != 0 && !json.contains("text_config");
  if (!open) return ConfigFromHuggingFace(json, file);
  nlohmann::ordered_json complete = json;
  if (!json.contains("num_key_value_heads") && RowsOf(checkpoint, "k") == q_rows) {
    complete["num_key_value_heads"] = nullptr;
  }
  ModelConfig config = ConfigFromHuggingFace(complete, file);
  const LayerConfig& layer = config.layers.front();
  if (!json.contains("num_attention_heads") &&
      uint64_t{layer.num_heads} * layer.head_dim != q_rows) {
    throw Error(ErrorCode::kParse,
                fmt::format("is missing, and what this family has by default, {}, does not fit the "
                            "{} rows of the query projection",
                            layer.num_heads, q_rows),
                {file, "config.num_attention_heads"});
  }
  return config;
}

// Whether there is a prediction head is for the tensors to say: configs name it in several ways, or
// not at all. Any of its tensors counts: that others are missing is said when it is bound.
uint32_t MtpLayers(const formats::Checkpoint& checkpoint, const ModelConfig& config) {
  const std::string appended = fmt::format("model.layers.{}.", config.num_layers);
  const auto of_head = [&](const auto& tensor) {
    return tensor.name.starts_with("mtp.") || tensor.name.starts_with(appended);
  };
  const bool present = std::ranges::any_of(checkpoint.tensors(), of_head) ||
                       std::ranges::any_of(checkpoint.opaque_tensors(), of_head);  // FP8
  return present ? 1 : 0;
}

}  // namespace

MixerKind ModelConfig::recurrent_kind() const {
  for (const LayerConfig& layer : layers) {
    if (IsRecurrent(layer.mixer)) return layer.mixer;
  }
  return MixerKind::kAttention;
}

const LayerConfig& ModelConfig::LayerOfVisit(uint32_t visit) const {
  if (visit < num_visits()) return layers[visit % num_layers];
  const auto attends = [](const LayerConfig& layer) { return !IsRecurrent(layer.mixer); };
  return *std::find_if(layers.rbegin(), layers.rend(), attends);
}

bool ModelConfig::HasMtpHead() const {
  return mtp_layers == 1 && mtp_shares_vocabulary && num_loops == 1 && embed_multiplier == 1.0f &&
         std::ranges::any_of(layers,
                             [](const LayerConfig& layer) { return !IsRecurrent(layer.mixer); });
}

ModelConfig ReadConfig(const formats::Checkpoint& checkpoint) {
  const std::string file = checkpoint.files().empty() ? "" : checkpoint.files().front();
  ModelConfig config;
  switch (checkpoint.kind()) {
    case formats::CheckpointKind::kHuggingFace:
      config = FromHuggingFace(checkpoint, file);
      UntieDifferingHead(checkpoint, &config);
      config.mtp_layers = MtpLayers(checkpoint, config);
      break;
    case formats::CheckpointKind::kCmf:
      config = ConfigFromCmfHeader(checkpoint.config(), file);
      break;
    case formats::CheckpointKind::kSmoe:
      config = ConfigFromSmoe(static_cast<const formats::SmoeVault&>(checkpoint));
      break;
    case formats::CheckpointKind::kGguf:
      throw Error(ErrorCode::kUnsupported, "models in this container cannot run yet", {file, ""});
  }
  // Each layer has at least one tensor, so a count above that is a lie, whatever it would cost to
  // believe it.
  if (config.num_layers > checkpoint.tensors().size()) {
    throw Error(ErrorCode::kMissingTensor,
                fmt::format("the config has {} layers, the file only {} tensors", config.num_layers,
                            checkpoint.tensors().size()),
                {file, "num_layers"});
  }
  return config;
}

}  // namespace moewe::model
