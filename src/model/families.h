// The model families that moewe reads from Hugging Face checkpoints: one row each, with what their
// configs leave unsaid.
//
// A row holds the values that transformers gives to keys that a config.json leaves out, and the
// rules that a family's code, rather than its config, decides. What a layer does is otherwise
// decided by its tensors. docs/guides/add-a-family.md explains the columns.
#ifndef MOEWE_MODEL_FAMILIES_H_
#define MOEWE_MODEL_FAMILIES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"

namespace moewe::model {

// Which layers see only sliding_window positions, where layer_types does not say it. Layers count
// from 0.
enum class WindowRule : uint8_t {
  kNone,
  kAll,           // every layer, if there is a window
  kFromLayer,     // use_sliding_window and i >= max_window_layers (Qwen2, Qwen3)
  kEvenBelow,     // use_sliding_window, i even and i < max_window_layers (Qwen2-MoE)
  kAllIfEnabled,  // use_sliding_window: every layer (Qwen3-MoE)
  kEven,          // even layers (Gemma 2, gpt-oss)
  kPattern,       // all but every sliding_window_pattern-th (Gemma 3)
  kListed,        // those that layer_types lists, none without it (Laguna)
};

// Where the size of the always-active expert comes from.
enum class SharedExpert : uint8_t {
  kNone,
  kSize,   // shared_expert_intermediate_size
  kCount,  // a number of experts, each moe intermediate wide
};

enum class TopkNorm : uint8_t { kNever, kAlways, kByKeyDefaultFalse, kByKeyDefaultTrue };

struct MoeRow {
  std::string_view experts_key;  // "" = a dense family
  uint32_t experts = 0;
  std::string_view top_k_key = "num_experts_per_tok";
  uint32_t top_k = 0;
  bool own_width = true;  // moe_intermediate_size; else experts are intermediate_size wide
  uint32_t width = 0;
  TopkNorm norm = TopkNorm::kAlways;
  std::string_view norm_key = "norm_topk_prob";
  bool sigmoid = false;
  bool scaled = false;   // routed_scaling_factor, moe_routed_scaling_factor
  bool grouped = false;  // n_group or num_expert_group, topk_group, topk_method
  float norm_epsilon = 0.0f;
  SharedExpert shared = SharedExpert::kNone;
  std::string_view shared_key = "";
  uint32_t shared_default = 0;
};

struct FamilyRow {
  std::string_view name;  // model_type of the text model
  uint32_t vocab_size;
  uint32_t hidden_size;
  uint32_t intermediate_size;  // 0 = that of the experts
  uint32_t num_layers;
  uint32_t num_heads;
  uint32_t num_kv_heads;  // 0 = num_heads
  uint32_t head_dim;      // 0 = hidden_size / num_heads
  uint32_t max_positions;
  double rms_norm_eps;
  double rope_theta;
  bool tied;
  WindowRule window = WindowRule::kNone;
  uint32_t window_size = 0;    // where sliding_window is left out
  bool norm_plus_one = false;  // norms (1 + w), as gemma has, too
  bool gemma =
      false;  // norms (1 + w), embeddings times sqrt(hidden_size), tanh-gelu, hidden_activation
  double attn_soft_cap = 0.0;  // Gemma 2, where the keys are left out
  double final_soft_cap = 0.0;
  double partial_rotary_factor = 1.0;
  // Sliding layers have a rope of their own, of this theta; 0 = the same everywhere.
  double local_rope_theta = 0.0;
  bool rope_interleaved = false;
  bool mla = false;                             // multi-head latent attention
  bool nope = false;                            // of it, without rotation
  MixerKind recurrent = MixerKind::kAttention;  // what layers are that have no attention
  bool loops = false;                           // num_loops, skip_loop_final_norm
  bool clamped_swiglu = false;                  // swiglu_alpha, swiglu_limit
  MoeRow moe = {};
  std::string_view needs = "";  // what its math needs, for `moewe families`
};

std::span<const FamilyRow> Families();

// The row of a model_type ("gemma3_text" is gemma3's text model); null if moewe has none.
const FamilyRow* FindFamily(std::string_view model_type);

// model_types that are known and planned, but not runnable yet.
std::span<const std::string_view> PlannedFamilies();

}  // namespace moewe::model

#endif  // MOEWE_MODEL_FAMILIES_H_
