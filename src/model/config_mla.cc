#include "model/config_mla.h"

#include <fmt/format.h>

#include <string>

#include "model/config_limits.h"

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kBest[] = "best";
constexpr char kBestTwo[] = "best_two";

uint32_t Even(const JsonKeys& keys, const char* key, uint32_t value) {
  if (value % 2 != 0) keys.Fail(key, fmt::format("{} is odd: it holds pairs", value));
  return value;
}

void CheckGroups(const JsonKeys& keys, const char* groups, const char* top, const MoeConfig& moe) {
  if (moe.groups == 0 || moe.num_experts % moe.groups != 0) {
    keys.Fail(groups, fmt::format("{} does not divide {} experts", moe.groups, moe.num_experts));
  }
  if (moe.top_groups * (moe.num_experts / moe.groups) < moe.top_k) {
    keys.Fail(top, fmt::format("{} groups of {} experts are fewer than the {} to be chosen",
                               moe.top_groups, moe.num_experts / moe.groups, moe.top_k));
  }
}

}  // namespace

MlaConfig MlaFromHuggingFace(const JsonKeys& keys, const FamilyRow& family) {
  MlaConfig mla;
  if (!keys.IsNull("q_lora_rank")) mla.q_lora_rank = keys.Uint("q_lora_rank", 1, kMaxHidden, 1536);
  mla.kv_lora_rank = keys.Uint("kv_lora_rank", 1, kMaxHidden, 512);
  mla.qk_nope_head_dim = keys.Uint("qk_nope_head_dim", 1, kMaxHeadDim, 128);
  mla.qk_rope_head_dim =
      Even(keys, "qk_rope_head_dim", keys.Uint("qk_rope_head_dim", 2, kMaxHeadDim, 64));
  mla.v_head_dim = keys.Uint("v_head_dim", 1, kMaxHeadDim, 128);
  mla.nope = keys.Bool("mla_use_nope", family.nope);
  const uint32_t head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  if (keys.Uint("qk_head_dim", 1, 2 * kMaxHeadDim, head_dim) != head_dim) {
    keys.Fail("qk_head_dim",
              fmt::format("is not qk_nope_head_dim + qk_rope_head_dim, {}", head_dim));
  }
  return mla;
}

void ReadExpertGroups(const JsonKeys& keys, const FamilyRow& family, MoeConfig* moe) {
  const bool sigmoid = family.moe.sigmoid;
  const char* const key =
      keys.Has("moe_router_activation_func") ? "moe_router_activation_func" : "scoring_func";
  const std::string function = keys.String(key, sigmoid ? "sigmoid" : "softmax");
  if (function != (sigmoid ? "sigmoid" : "softmax")) {
    keys.Unsupported(key, fmt::format("'{}' is not what this family has", function));
  }
  const std::string method = keys.String("topk_method", sigmoid ? "noaux_tc" : "greedy");
  if (method == "greedy" && !sigmoid) {
    if (moe->norm_topk_prob) {
      keys.Unsupported("norm_topk_prob", "true is not supported for this family");
    }
    keys.Accept({"n_group", "topk_group"});  // groups, if there are any, do not matter
    return;
  }
  if (method != (sigmoid ? "noaux_tc" : "group_limited_greedy")) {
    keys.Unsupported("topk_method", fmt::format("'{}' is not supported for this family", method));
  }
  if (!sigmoid && moe->norm_topk_prob) {
    keys.Unsupported("norm_topk_prob", "true is not supported for this family");
  }
  const bool v3 = family.name == "deepseek_v3";  // whose config class has defaults
  const char* const groups = keys.Has("num_expert_group") ? "num_expert_group" : "n_group";
  if (!keys.Bool("use_grouped_topk", true)) {
    keys.Unsupported("use_grouped_topk", "false is not supported yet");
  }
  moe->groups = keys.Uint(groups, 1, kMaxRouterGroups, v3 ? 8 : 1);
  moe->top_groups = keys.Uint("topk_group", 1, moe->groups, v3 ? 4 : 1);
  CheckGroups(keys, groups, "topk_group", *moe);
  if (sigmoid && moe->groups > 1) moe->group_score = GroupScore::kBestTwo;
}

MlaConfig MlaFromCmf(const JsonKeys& block) {
  MlaConfig mla;
  mla.q_lora_rank = block.Uint("q_lora_rank", 0, kMaxHidden, 0);
  mla.kv_lora_rank = block.Uint("kv_lora_rank", 1, kMaxHidden);
  mla.qk_nope_head_dim = block.Uint("qk_nope_head_dim", 1, kMaxHeadDim);
  mla.qk_rope_head_dim =
      Even(block, "qk_rope_head_dim", block.Uint("qk_rope_head_dim", 2, kMaxHeadDim));
  mla.v_head_dim = block.Uint("v_head_dim", 1, kMaxHeadDim);
  mla.nope = block.Bool("nope", false);
  mla.rope_first = block.Bool("rope_first", true);
  return mla;
}

Json MlaToCmf(const MlaConfig& mla) {
  Json block = {{"kv_lora_rank", mla.kv_lora_rank},
                {"qk_rope_head_dim", mla.qk_rope_head_dim},
                {"qk_nope_head_dim", mla.qk_nope_head_dim},
                {"v_head_dim", mla.v_head_dim},
                {"nope", mla.nope},
                {"rope_first", mla.rope_first}};
  if (mla.q_lora_rank != 0) block["q_lora_rank"] = mla.q_lora_rank;
  return block;
}

void ReadExpertGroupsFromCmf(const JsonKeys& block, MoeConfig* moe) {
  moe->groups = block.Uint("groups", 2, kMaxRouterGroups);
  moe->top_groups = block.Uint("top_groups", 1, moe->groups);
  CheckGroups(block, "groups", "top_groups", *moe);
  const std::string score = block.String("score");
  if (score != kBest && score != kBestTwo) {
    block.Unsupported("score", fmt::format("'{}' is not supported", score));
  }
  moe->group_score = score == kBest ? GroupScore::kBest : GroupScore::kBestTwo;
}

Json ExpertGroupsToCmf(const MoeConfig& moe) {
  return {{"groups", moe.groups},
          {"top_groups", moe.top_groups},
          {"score", moe.group_score == GroupScore::kBest ? kBest : kBestTwo}};
}

}  // namespace moewe::model
