#include "model/config_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "model/config_limits.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<std::string_view, MixerKind>, 3> kTags = {
    {{"LinearAttention", MixerKind::kGatedDeltaNet},
     {"Kda", MixerKind::kKda},
     {"ShortConv", MixerKind::kShortConv}}};

void CheckHeads(const JsonKeys& keys, const char* key, const LinearConfig& linear) {
  if (linear.value_heads % linear.key_heads != 0) {
    keys.Fail(key, fmt::format("{} is not a multiple of {} key heads", linear.value_heads,
                               linear.key_heads));
  }
}

// Every n-th layer has attention, the others are recurrent.
std::vector<bool> AllBut(uint32_t every, uint32_t num_layers) {
  std::vector<bool> recurrent(num_layers);
  for (uint32_t i = 0; i < num_layers; ++i) recurrent[i] = (i + 1) % every != 0;
  return recurrent;
}

// Kimi counts its layers from 1, and lists both kinds.
std::vector<bool> KdaLayers(const JsonKeys& block, uint32_t num_layers) {
  std::vector<bool> recurrent(num_layers, false);
  std::vector<bool> listed(num_layers, false);
  for (const char* key : {"kda_layers", "full_attn_layers"}) {
    const Json* list = block.Find(key);
    if (list == nullptr || !list->is_array()) block.Fail(key, "must be a list of layers");
    for (const Json& layer : *list) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() - 1 >= num_layers ||
          listed[layer.get<uint64_t>() - 1]) {
        block.Fail(key, fmt::format("holds {}, which is no layer or listed before", layer.dump()));
      }
      listed[layer.get<uint64_t>() - 1] = true;
      if (key == std::string_view("kda_layers")) recurrent[layer.get<uint64_t>() - 1] = true;
    }
  }
  if (std::ranges::find(listed, false) != listed.end()) {
    block.Fail("kda_layers", "and full_attn_layers do not have all layers");
  }
  return recurrent;
}

// What the keys that give a distance between layers of attention say; empty if there is none.
std::vector<bool> ByDistance(const JsonKeys& keys, uint32_t num_layers) {
  const std::string_view key = keys.OneOf({"full_attention_interval", "layer_group_size"});
  if (key.empty()) return {};
  return AllBut(keys.Uint(key, 1, kMaxLayers), num_layers);
}

LinearConfig KdaFromHuggingFace(const JsonKeys& keys) {
  LinearConfig linear;
  const auto block = keys.Object("linear_attn_config");
  const auto size = [&](const char* nested, const char* flat, uint32_t most, uint32_t fallback) {
    return block ? block->Uint(nested, 1, most) : keys.Uint(flat, 1, most, fallback);
  };
  const std::string_view taps = keys.OneOf({"linear_conv_kernel_dim", "short_conv_kernel_size"});
  linear.key_heads = linear.value_heads = size("num_heads", "linear_num_heads", kMaxHeads, 32);
  linear.key_dim = linear.value_dim = size("head_dim", "linear_head_dim", kMaxHeadDim, 128);
  linear.conv_taps =
      size("short_conv_kernel_size",
           taps.empty() ? "linear_conv_kernel_dim" : std::string(taps).c_str(), kMaxConvTaps, 4);
  if (keys.Bool("kda_safe_gate", false)) {
    linear.least_log_decay = static_cast<float>(keys.Number("kda_lower_bound", -1e3, -1e-3, -5.0));
  }
  return linear;
}

}  // namespace

bool IsRecurrentType(std::string_view type) { return type == "linear_attention" || type == "conv"; }

std::vector<bool> RecurrentLayers(const JsonKeys& keys, const FamilyRow& family,
                                  uint32_t num_layers) {
  if (!IsRecurrent(family.recurrent)) return std::vector<bool>(num_layers, false);
  const std::vector<bool> by_distance = ByDistance(keys, num_layers);
  if (keys.Has("layer_types")) {
    std::vector<bool> recurrent;
    for (const std::string& type : keys.Strings("layer_types", num_layers)) {
      recurrent.push_back(IsRecurrentType(type));
    }
    if (!by_distance.empty() && by_distance != recurrent) {
      keys.Fail("layer_types", "contradicts the distance between layers of attention");
    }
    return recurrent;
  }
  if (!by_distance.empty()) return by_distance;
  if (family.recurrent == MixerKind::kGatedDeltaNet) return AllBut(4, num_layers);
  if (const auto block = keys.Object("linear_attn_config")) return KdaLayers(*block, num_layers);
  keys.Fail("layer_types", "is missing");
}

LinearConfig LinearFromHuggingFace(const JsonKeys& keys, const FamilyRow& family) {
  LinearConfig linear;
  switch (family.recurrent) {
    case MixerKind::kShortConv:
      linear.conv_taps = keys.Uint("conv_L_cache", 1, kMaxConvTaps, 3);
      if (keys.Bool("conv_bias", false)) keys.Unsupported("conv_bias", "true is not supported yet");
      return linear;
    case MixerKind::kKda:
      return KdaFromHuggingFace(keys);
    case MixerKind::kGatedDeltaNet:
      linear.conv_taps = keys.Uint("linear_conv_kernel_dim", 1, kMaxConvTaps, 4);
      linear.key_heads = keys.Uint("linear_num_key_heads", 1, kMaxHeads, 16);
      linear.value_heads = keys.Uint("linear_num_value_heads", 1, kMaxHeads, 32);
      linear.key_dim = keys.Uint("linear_key_head_dim", 1, kMaxHeadDim, 128);
      linear.value_dim = keys.Uint("linear_value_head_dim", 1, kMaxHeadDim, 128);
      CheckHeads(keys, "linear_num_value_heads", linear);
      return linear;
    default:
      return linear;
  }
}

MixerKind RecurrentKindOfTag(std::string_view tag) {
  for (const auto& [name, kind] : kTags) {
    if (name == tag) return kind;
  }
  return MixerKind::kAttention;
}

std::string_view TagOfRecurrentKind(MixerKind kind) {
  return std::find_if(kTags.begin(), kTags.end(),
                      [&](const auto& tag) { return tag.second == kind; })
      ->first;
}

LinearConfig LinearFromCmf(const JsonKeys& arch, MixerKind kind) {
  LinearConfig linear;
  linear.conv_taps = arch.Uint("linear_conv_kernel_dim", 1, kMaxConvTaps);
  if (kind == MixerKind::kShortConv) return linear;
  linear.key_heads = arch.Uint("linear_num_key_heads", 1, kMaxHeads);
  linear.value_heads = arch.Uint("linear_num_value_heads", 1, kMaxHeads, linear.key_heads);
  linear.key_dim = arch.Uint("linear_key_head_dim", 1, kMaxHeadDim, 128);
  linear.value_dim = arch.Uint("linear_value_head_dim", 1, kMaxHeadDim, 128);
  CheckHeads(arch, "linear_num_value_heads", linear);
  if (kind == MixerKind::kKda) {
    if (linear.value_heads != linear.key_heads) {
      arch.Fail("linear_num_value_heads", "differs from linear_num_key_heads in a Kda model");
    }
    linear.least_log_decay =
        static_cast<float>(arch.Number("kda_gate_lower_bound", -1e3, 0.0, 0.0));
  } else if (const auto core = arch.Object("linear_core")) {
    if (core->String("kind", "gated_delta_net") != "gated_delta_net") {
      core->Unsupported("kind", "other than gated_delta_net is not supported yet");
    }
  }
  return linear;
}

void LinearToCmf(const LinearConfig& linear, MixerKind kind, Json* arch) {
  (*arch)["linear_conv_kernel_dim"] = linear.conv_taps;
  if (kind == MixerKind::kShortConv) return;
  (*arch)["linear_num_key_heads"] = linear.key_heads;
  (*arch)["linear_num_value_heads"] = linear.value_heads;
  (*arch)["linear_key_head_dim"] = linear.key_dim;
  (*arch)["linear_value_head_dim"] = linear.value_dim;
  if (linear.least_log_decay != 0.0f) (*arch)["kda_gate_lower_bound"] = linear.least_log_decay;
  if (kind == MixerKind::kGatedDeltaNet) {
    (*arch)["linear_core"] = {{"kind", "gated_delta_net"},
                              {"num_heads", linear.value_heads},
                              {"value_head_dim", linear.value_dim}};
  }
}

}  // namespace moewe::model
