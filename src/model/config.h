// What a model's math needs to know beside its tensors, from whatever container it came.
//
// Sources: a Hugging Face config.json (published spelling or transformers 5 spelling) and the
// `arch` object of a CMF header (section 2, plus the fields of existing files, plus moewe's own
// block `arch.moewe`, see docs/formats/arch-moewe.md). Both give the same ModelConfig for the same
// model. What the tensors themselves say (biases, q/k norms and their width, post-norms, router,
// shared expert and its gate, FFN widths, expert counts) is not here: weights bind by presence.
#ifndef MOEWE_MODEL_CONFIG_H_
#define MOEWE_MODEL_CONFIG_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "kernels/compute.h"

namespace moewe::model {

// YaRN (Peng et al. 2023, arXiv 2309.00071) as CMF section 2 spells it.
struct YarnScaling {
  double factor = 1.0;
  uint32_t original_max_positions = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // the correction range is rounded outwards to whole channels

  bool operator==(const YarnScaling&) const = default;
};

// Rotary position embedding of one kind of layer. The first group is the description, as files
// carry it; the second is what the math uses, derived from it by FinishRope().
struct Rope {
  double theta = 10000.0;
  uint32_t rotary_dim = 0;  // channels of a head that rotate: the first ones; even; 0 = no rotation
  std::optional<YarnScaling> yarn;  // divides frequencies, in addition to freq_factors
  std::vector<double>
      freq_factors;  // divisor of each frequency (llama3, linear, longrope short); empty = 1
  std::vector<double>
      freq_factors_long;  // longrope: instead of freq_factors beyond long_from positions
  uint32_t long_from = 0;
  float attention_factor = 1.0f;  // multiplies cos and sin; final, nothing else is applied to it
  bool interleaved = false;       // pairs are (2i, 2i+1); else (i, i + rotary_dim/2)

  // Angle per position of each rotated pair [rotary_dim / 2]. Empty = no rotation.
  std::vector<float> inv_freq;
  // Used instead of inv_freq once the sequence is longer than long_from positions. Empty = never.
  std::vector<float> inv_freq_long;

  bool operator==(const Rope&) const = default;
};

enum class MixerKind : uint8_t { kAttention, kMla, kGatedDeltaNet, kKda, kShortConv };

// Mixers that carry a state from position to position instead of keys and values.
constexpr bool IsRecurrent(MixerKind kind) {
  return kind == MixerKind::kGatedDeltaNet || kind == MixerKind::kKda ||
         kind == MixerKind::kShortConv;
}

struct LayerConfig {
  MixerKind mixer = MixerKind::kAttention;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t sliding_window = 0;  // keys with query_pos - key_pos < window; 0 = all
  uint32_t rope = 0;            // index into ModelConfig::ropes

  bool operator==(const LayerConfig&) const = default;
};

// Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434): keys and values of all heads
// come from one latent vector a position, which is what the KV cache holds, beside one rotated key
// part that all heads share. A layer's num_kv_heads and head_dim say nothing of the cache then;
// head_dim = qk_nope_head_dim + qk_rope_head_dim.
struct MlaConfig {
  uint32_t q_lora_rank = 0;  // 0 = queries come straight from the hidden state
  uint32_t kv_lora_rank = 0;
  uint32_t qk_nope_head_dim = 0;
  uint32_t qk_rope_head_dim = 0;
  uint32_t v_head_dim = 0;
  bool nope = false;  // nothing rotates: positions are known from other layers alone
  // A head's rows of q (or q_up) begin with those that rotate: files of the existing runtime.
  bool rope_first = false;

  uint32_t key_width() const { return kv_lora_rank + qk_rope_head_dim; }  // of the cache
  uint32_t rotated() const { return nope ? 0 : qk_rope_head_dim; }        // of a head

  bool operator==(const MlaConfig&) const = default;
};

// Layers with a delta rule: Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464), whose state decays
// by head, and Kimi Delta Attention (Kimi Team 2025, arXiv 2510.26692), where every channel of the
// keys has a decay of its own. Value head j reads key head j / (value_heads / key_heads).
// MixerKind::kShortConv has conv_taps only, and channels as the model has.
struct LinearConfig {
  uint32_t conv_taps = 0;  // of the causal convolution: positions that it sees
  uint32_t key_heads = 0;
  uint32_t value_heads = 0;
  uint32_t key_dim = 0;  // of a head
  uint32_t value_dim = 0;
  // Kimi Delta Attention: the least log of a decay, which is this times a sigmoid; 0 = minus
  // softplus, without a bound.
  float least_log_decay = 0.0f;

  uint32_t keys() const { return key_heads * key_dim; }
  uint32_t values() const { return value_heads * value_dim; }
  // Queries, keys and values, which the convolution runs over.
  uint32_t channels() const { return 2 * keys() + values(); }

  bool operator==(const LinearConfig&) const = default;
};

// How experts are chosen group by group (equal, adjacent ones): only the best groups' take part.
enum class GroupScore : uint8_t {
  kBest,     // a group's highest score (DeepSeek-V2)
  kBestTwo,  // the sum of its two highest (DeepSeek-V3)
};

struct MoeConfig {
  uint32_t num_experts = 0;  // nominal: a layer's count is what its tensors say
  uint32_t top_k = 0;
  uint32_t intermediate_size = 0;
  uint32_t shared_intermediate_size = 0;  // 0 = no shared expert
  bool norm_topk_prob = false;            // renormalize the chosen weights to sum 1
  bool router_sigmoid = false;            // sigmoid scores instead of softmax over all experts
  float norm_epsilon = 0.0f;  // added to the sum when renormalizing (1e-20 deepseek style)
  float routed_scaling_factor = 1.0f;
  uint32_t groups = 1;                         // divides num_experts
  uint32_t top_groups = 1;                     // that take part
  GroupScore group_score = GroupScore::kBest;  // if groups > 1

  bool operator==(const MoeConfig&) const = default;
};

// Things in a config that were ignored and that a user may want to know. Not part of what a config
// means.
struct Warnings {
  std::vector<std::string> list;
  bool operator==(const Warnings&) const { return true; }
};

struct ModelConfig {
  std::string arch_name;  // the family: model_type, for display
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t num_layers = 0;
  uint32_t vocab_size = 0;
  uint32_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  float norm_weight_offset = 0.0f;  // 1 for Gemma's (1 + w)
  bool tie_word_embeddings = false;
  kernels::Gate gate_function = kernels::GateFunction::kSilu;
  float embed_multiplier = 1.0f;
  float residual_multiplier = 1.0f;  // on both residual additions (Granite)
  float attention_scale = 0.0f;      // multiplies q.k; resolved, e.g. head_dim^-1/2
  float attn_soft_cap = 0.0f;        // 0 = none
  float final_soft_cap = 0.0f;       // 0 = none
  float logit_multiplier = 1.0f;     // applied to logits before the final cap
  bool has_moe = false;
  MoeConfig moe;
  MlaConfig mla;        // if layers have MixerKind::kMla
  LinearConfig linear;  // if layers are recurrent
  // A looped transformer runs its stack of layers num_loops times over the residual stream, with
  // the same weights and positions; each visit of a layer has its own keys and values.
  uint32_t num_loops = 1;
  bool loop_final_norm = false;  // the final norm is also applied between passes
  // Multi-token-prediction heads under model.mtp.*. One can run and draft what follows
  // (model/transformer_mtp.cc): it reads the main model's hidden state after the final norm, or
  // before it.
  uint32_t mtp_layers = 0;
  bool mtp_reads_normed = true;
  bool mtp_shares_vocabulary = true;  // embedding and output head are the model's
  bool mtp_runs = false;              // not of the model: whether it was loaded with its head
  std::vector<Rope> ropes;            // those that layers use, in the order of their first use
  std::vector<LayerConfig> layers;
  Warnings warnings;

  // What a position of a layer takes in the KV cache: rows of keys and of values of that many
  // elements, one a KV head. No values of their own: they are the first part of the key row.
  struct CachedRows {
    uint32_t heads = 0;
    uint32_t key_width = 0;
    uint32_t value_width = 0;
  };
  CachedRows CachedBy(const LayerConfig& layer) const {
    if (layer.mixer == MixerKind::kMla) return {1, mla.key_width(), 0};
    if (IsRecurrent(layer.mixer)) return {};
    return {layer.num_kv_heads, layer.head_dim, layer.head_dim};
  }

  // What a layer carries from one position to the next: the last inputs of its convolution
  // [conv_taps - 1, channels], and a delta rule's matrices [value_heads, key_dim, value_dim].
  uint64_t StateFloats(const LayerConfig& layer) const {
    if (!IsRecurrent(layer.mixer)) return 0;
    const uint64_t past = linear.conv_taps - 1;
    if (layer.mixer == MixerKind::kShortConv) return past * hidden_size;
    return past * linear.channels() + uint64_t{linear.values()} * linear.key_dim;
  }

  bool has_mla() const { return mla.kv_lora_rank != 0; }
  // What layers are that have no attention; MixerKind::kAttention if all have it.
  MixerKind recurrent_kind() const;

  // Visits of layers in one forward pass, pass-major: visit v is of layer v % num_layers.
  uint32_t num_visits() const { return num_layers * num_loops; }
  // Those that have a part of the KV cache: a head's layer comes after all others.
  uint32_t num_cached_visits() const { return num_visits() + (mtp_runs ? 1 : 0); }
  // A head's layer is as the model's layers with attention are.
  const LayerConfig& LayerOfVisit(uint32_t visit) const;
  // Whether a head is there that moewe can run.
  bool HasMtpHead() const;
  // A head has no row for the first position: nothing comes before it.
  uint32_t FirstPosition(uint32_t visit) const { return visit < num_visits() ? 0 : 1; }

  bool operator==(const ModelConfig&) const = default;
};

// config.json of `checkpoint` (kHuggingFace) or the header's arch (kCmf). Every value is
// range-checked. Throws Error{kParse} naming the key, Error{kUnsupported} for families, rope types
// or options that moewe cannot run, and for quantized weights in foreign formats (GPTQ, AWQ,
// bitsandbytes, fp8 without blocks), by name.
ModelConfig ReadConfig(const formats::Checkpoint& checkpoint);

// The same from plain JSON: a whole config.json, and a whole CMF header. `file` is named in errors.
ModelConfig ConfigFromHuggingFace(const nlohmann::ordered_json& config, const std::string& file);
ModelConfig ConfigFromCmfHeader(const nlohmann::ordered_json& header, const std::string& file);

// The `arch` object of a CMF header that describes `config`: section 2's names and those of
// existing files where they exist, the block "moewe" for what has none. ReadConfig of the result
// gives `config` back. Throws Error{kUnsupported} for a config that no file could have given (three
// kinds of rope, say).
nlohmann::ordered_json ToCmfArch(const ModelConfig& config);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONFIG_H_
