// A model's tensors bound by canonical name into one struct a layer.
//
// Presence decides what a layer is: which projections have a bias, whether q and k are normalized
// and over what, whether attention and FFN outputs are normalized (Gemma), dense FFN or router with
// experts, shared expert, gate. The config says only what tensors cannot. FFN widths and expert
// counts are those of the tensors, layer by layer. Every shape is checked here, so that the forward
// pass needs no checks. Matrices point into the checkpoint; vectors are decoded to f32 once.
#ifndef MOEWE_MODEL_WEIGHTS_H_
#define MOEWE_MODEL_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/made_bytes.h"
#include "kernels/compute.h"
#include "model/config.h"

namespace moewe::model {

// Optional members are empty if the model has no such tensor.
struct AttentionWeights {
  kernels::Matrix q, k, v, o;  // [heads * head_dim, hidden], [kv_heads * head_dim, hidden] twice,
                               // [hidden, heads * head_dim]
  // What heads mix is multiplied by a gate before `o`: by the sigmoid of further rows of q, which
  // then has, a head, head_dim rows of the query and head_dim rows of the gate (Qwen3-Next); or by
  // the softplus of these rows, one a head or one a channel (Laguna).
  bool gate_in_q = false;
  kernels::Matrix output_gate;  // [heads, hidden] or [heads * head_dim, hidden]
  std::vector<float> sinks;     // [heads]: a logit in the softmax denominator
  std::vector<float> q_bias, k_bias, v_bias, o_bias;
  std::vector<float> q_norm,
      k_norm;  // [head_dim]: each head alone; [heads * head_dim]: all heads together
};

// Multi-head latent attention; a head's rows of q_up (or q): qk_nope_head_dim, then
// qk_rope_head_dim (MlaConfig::rope_first: the other way round); of kv_up: qk_nope_head_dim rows
// for keys, then v_head_dim for values.
struct MlaWeights {
  kernels::Matrix q;                // [heads * head_dim, hidden], or ...
  kernels::Matrix q_down, q_up;     // [q_lora_rank, hidden], [heads * head_dim, q_lora_rank]
  std::vector<float> q_down_norm;   // [q_lora_rank]
  kernels::Matrix kv_down;          // [kv_lora_rank + qk_rope_head_dim, hidden]
  std::vector<float> kv_down_norm;  // [kv_lora_rank]
  kernels::Matrix kv_up;            // [heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]
  kernels::Matrix gate;             // [heads, hidden]; sigmoid of it scales a head; optional
  kernels::Matrix o;                // [hidden, heads * v_head_dim]

  // All of them, for sums of bytes.
  std::array<const kernels::Matrix*, 7> matrices() const {
    return {&q, &q_down, &q_up, &kv_down, &kv_up, &gate, &o};
  }
};

// Gated DeltaNet and Kimi Delta Attention; sizes as LinearConfig has them. A decay is of a value
// head, in the latter of a channel of the keys.
struct LinearWeights {
  kernels::Matrix qkv;      // [channels, hidden], or ...
  kernels::Matrix q, k, v;  // [keys, hidden] twice, [values, hidden], or ...
  // ... with gate, beta and decay, a key head after the other: its query, key, values and their
  // gates; the values' betas and decays (Qwen3-Next).
  kernels::Matrix qkvz, ba;            // [channels + values, hidden], [2 * value_heads, hidden]
  kernels::Matrix gate;                // [values, hidden], or ...
  kernels::Matrix gate_down, gate_up;  // [any, hidden], [values, any]
  kernels::Matrix decay;               // [decays, hidden], or ...
  kernels::Matrix decay_down, decay_up;
  kernels::Matrix beta;           // [value_heads, hidden]
  kernels::Matrix out;            // [hidden, values]
  std::vector<float> conv;        // [conv_taps, channels], oldest first
  std::vector<float> rate;        // [decays]: exp(A_log)
  std::vector<float> decay_bias;  // [decays]
  std::vector<float> norm;        // [value_dim]

  std::array<const kernels::Matrix*, 14> matrices() const {
    return {&qkv,       &q,       &k,     &v,          &qkvz,     &ba,   &gate,
            &gate_down, &gate_up, &decay, &decay_down, &decay_up, &beta, &out};
  }
  std::array<const std::vector<float>*, 4> vectors() const {
    return {&conv, &rate, &decay_bias, &norm};
  }
};

struct ShortConvWeights {
  kernels::Matrix in;       // [3 * hidden, hidden]
  kernels::Matrix out;      // [hidden, hidden]
  std::vector<float> conv;  // [conv_taps, hidden], oldest first
};

struct MoeWeights {
  kernels::Matrix router;          // [experts, hidden]
  std::vector<float> router_bias;  // [experts], of the logits
  std::vector<float> expert_bias;  // [experts], for the choice only
  std::vector<kernels::FfnMatrices> experts;
  std::vector<std::array<uint32_t, 3>>
      expert_tensors;  // gate, up, down as indices into Weights::tensors
  // Biases of gate, up and down, which `experts` point at; empty if the layer has none.
  std::vector<std::array<std::vector<float>, 3>> expert_biases;
  kernels::FfnMatrices shared;  // gate.empty() = no shared expert
  kernels::Matrix shared_gate;  // [1, hidden]
};

struct LayerWeights {
  std::vector<float> attention_norm;       // [hidden], before the mixer
  std::vector<float> attention_post_norm;  // on its output, before the residual addition; optional
  std::vector<float> ffn_norm;             // [hidden], before the FFN
  std::vector<float> ffn_post_norm;        // optional
  AttentionWeights attention;              // of MixerKind::kAttention
  MlaWeights mla;                          // of MixerKind::kMla
  LinearWeights linear;                    // of MixerKind::kGatedDeltaNet and kKda
  ShortConvWeights short_conv;             // of MixerKind::kShortConv
  bool is_moe = false;
  kernels::FfnMatrices ffn;  // if not is_moe
  MoeWeights moe;            // if is_moe
};

// A multi-token-prediction head (model/transformer_mtp.cc).
struct MtpWeights {
  std::vector<float> embed_norm, hidden_norm;  // [hidden]
  kernels::Matrix join;                        // [hidden, 2 * hidden]: the embedding first
  LayerWeights layer;
  std::vector<float> norm;  // [hidden], before the model's own output head
};

// What a model does with a tensor.
enum class TensorUse : uint8_t { kNone, kTrunk, kExpert };

struct Weights {
  std::vector<formats::TensorView> tensors;  // canonical
  std::vector<TensorUse> uses;               // of each of them
  kernels::Matrix embed;                     // [vocab, hidden]
  kernels::Matrix lm_head;                   // [vocab, hidden]; the embedding itself if tied
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;                  // of ModelConfig::mtp_runs
  std::vector<formats::HeldBytes> held;           // bytes of matrices that were made for this
  std::vector<std::vector<uint64_t>> row_starts;  // what Matrix::row_starts point at
  uint64_t bytes_total = 0;
  uint64_t expert_bytes = 0;  // of these, routed experts
};

enum class TensorHashes : uint8_t { kIgnore, kVerifyAllButExperts };

// Which stored bytes binding looks at: to check encodings and hashes, to decode vectors, to find
// rows.
enum class BytesToRead : uint8_t {
  kAll,
  kTrunk,  // and experts that are in no file; of the others, whoever reads their bytes checks those
  kNone,   // names, shapes and sizes only: vectors are zeros
};

// Throws Error{kMissingTensor} naming the tensor, {kParse} for a shape that does not fit,
// {kUnsupported} for a dtype that cannot be computed with and for a layer's tensor whose meaning is
// unknown, {kHashMismatch}. The checkpoint must outlive the result.
Weights BindWeights(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                    TensorHashes hashes, BytesToRead read = BytesToRead::kAll);

// The same over `tensors`, which are the checkpoint's canonical ones, wherever their bytes lie.
Weights BindTensors(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                    std::vector<formats::TensorView> tensors, TensorHashes hashes,
                    BytesToRead read);

// Throws as BindWeights for bytes that are no encoding of the tensor's shape.
void CheckEncoding(const formats::Checkpoint& checkpoint, const formats::TensorView& tensor);

// Throws Error{kUnsupported} naming a tensor that is bound to be converted only (FP8).
void RequireComputable(const formats::Checkpoint& checkpoint, const Weights& weights);

// Whether the bytes of `tensor` have its stored hash (0 = not protected). Any thread.
bool HasStoredHash(const formats::TensorView& tensor);

// Throws Error{kHashMismatch} unless they do.
void VerifyTensor(const formats::Checkpoint& checkpoint, const formats::TensorView& tensor);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_WEIGHTS_H_
