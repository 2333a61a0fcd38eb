// Whether a vault and its Scout make a model, and which one: the tensors say how it is built, the
// arch block gives the constants that no shape can show.
#ifndef MOEWE_FORMATS_SMOE_SCOUT_H_
#define MOEWE_FORMATS_SMOE_SCOUT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/smoe/vault_tables.h"
#include "formats/tensor_index.h"

namespace moewe::formats::smoe {

// Keys of a Scout's __metadata__ that moewe writes and checks; other readers ignore them.
inline constexpr char kKeyName[] = "moewe.key";    // VaultKey of the vault
inline constexpr char kArchName[] = "moewe.arch";  // the arch object of a CMF header, as JSON

// Constants of vaults without an arch block.
inline constexpr float kLegacyTheta = 1e6f;
inline constexpr uint32_t kLegacyTopK = 8;
inline constexpr uint32_t kLegacyHeadDim = 128;
inline constexpr float kLegacyEps = 1e-6f;

struct ScoutView {
  const std::string& path;
  const TensorIndex& tensors;
  const std::vector<OpaqueTensor>& opaque;
  const std::map<std::string, std::string>& metadata;
};

// What the two files say together.
struct Geometry {
  std::string model_type;  // empty in v1
  uint32_t hidden_size = 0;
  uint32_t vocab_size = 0;
  uint32_t num_layers = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  float rope_theta = 0.0f;
  float rms_norm_eps = 0.0f;
  uint32_t top_k = 0;
  bool norm_topk_prob = false;
  uint32_t num_experts = 0;  // the most of a layer
  uint32_t expert_width = 0;
  uint32_t shared_width = 0;  // 0 = no shared expert
  uint32_t dense_width = 0;   // of the first dense layer, else what the arch block says
  bool has_dense_layer_0 = false;
  bool has_qk_norm = false;
  bool tied = false;                  // there is no lm_head
  std::string arch_json;              // moewe.arch; empty if the Scout has none
  std::vector<std::string> warnings;  // disagreements, each beginning with the field
};

// Every tensor that the model needs is looked for, with its shape; unknown tensors do not matter.
// Throws Error{kMissingTensor, kParse, kUnsupported, kHashMismatch} naming the tensor or the
// vault's field.
Geometry CheckPair(const VaultTables& vault, const std::string& vault_path, Bytes vault_file,
                   const ScoutView& scout);

// What tells one vault from another of the same shape, at the price of a few reads: hash64 over
// table, descriptors and the start of each layer's first blob, 16 hex digits. The header and the
// arch block are left out, so that an upgrade in place keeps it.
std::string VaultKey(const VaultTables& vault, Bytes file);

}  // namespace moewe::formats::smoe

#endif  // MOEWE_FORMATS_SMOE_SCOUT_H_
