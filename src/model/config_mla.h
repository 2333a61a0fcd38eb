// Multi-head latent attention and choosing experts by groups, as Hugging Face configs and CMF
// headers spell them.
#ifndef MOEWE_MODEL_CONFIG_MLA_H_
#define MOEWE_MODEL_CONFIG_MLA_H_

#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/families.h"
#include "model/json_keys.h"

namespace moewe::model {

// q_lora_rank (null = none), kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim; what is
// left out is DeepSeek-V2's and V3's.
MlaConfig MlaFromHuggingFace(const JsonKeys& keys, const FamilyRow& family);

// n_group, topk_group and topk_method; the config's experts must be known. Throws
// Error{kParse, kUnsupported} naming the key.
void ReadExpertGroups(const JsonKeys& keys, const FamilyRow& family, MoeConfig* moe);

// The block arch.mla, whose names existing files have; q_lora_rank and rope_first are our
// additions. Files without the latter have the rotated rows of a head's query first.
MlaConfig MlaFromCmf(const JsonKeys& block);
nlohmann::ordered_json MlaToCmf(const MlaConfig& mla);

// arch.moewe.expert_groups.
void ReadExpertGroupsFromCmf(const JsonKeys& block, MoeConfig* moe);
nlohmann::ordered_json ExpertGroupsToCmf(const MoeConfig& moe);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONFIG_MLA_H_
