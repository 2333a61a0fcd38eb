#include "formats/smoe/scout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/hash64.h"
#include "formats/safetensors/safetensors.h"

namespace moewe::formats::smoe {
namespace {

constexpr uint64_t kAny = 0;
constexpr uint64_t kKeyBlobBytes = 4096;

// Constants of vaults without an arch block.
constexpr float kLegacyTheta = 1e6f;
constexpr uint32_t kLegacyTopK = 8;
constexpr uint32_t kLegacyHeadDim = 128;
constexpr float kLegacyEps = 1e-6f;

class PairChecker {
 public:
  PairChecker(const VaultTables& vault, const std::string& vault_path, const ScoutFile& scout)
      : vault_(vault), vault_path_(vault_path), scout_(scout) {}

  Geometry Run() {
    if (const auto arch = scout_.metadata.find(kArchName); arch != scout_.metadata.end()) {
      out_.arch_json = arch->second;
    }
    CheckEnds();
    const uint32_t layers = CountLayers();
    arch_ = vault_.arch ? *vault_.arch : LegacyArch();
    arch_.num_hidden_layers = layers;
    TakeExperts();
    for (uint32_t i = 0; i < arch_.num_hidden_layers; ++i) CheckLayer(i);
    CheckTopK();
    if (vault_.arch) CompareWith(*vault_.arch);
    arch_.shared_expert_ffn_dim = shared_width_;
    if (first_dense_ != 0) arch_.dense_ffn_dim = first_dense_;
    out_.arch = arch_;
    return std::move(out_);
  }

 private:
  // --- messages ---

  [[noreturn]] void FailVault(const std::string& field, const std::string& message) const {
    throw Error(ErrorCode::kParse, message, {vault_path_, field});
  }
  [[noreturn]] void FailTensor(ErrorCode code, const std::string& name,
                               const std::string& message) const {
    throw Error(code, message, {scout_.path, name});
  }
  void Warn(const std::string& field, const std::string& message) {
    out_.warnings.push_back(field + ": " + message);
  }

  // --- tensors ---

  bool Has(const std::string& name) const {
    return scout_.tensors.Find(name) != nullptr || FindOpaque(name) != nullptr;
  }
  const OpaqueTensor* FindOpaque(const std::string& name) const {
    const auto found = std::find_if(scout_.opaque.begin(), scout_.opaque.end(),
                                    [&](const OpaqueTensor& t) { return t.name == name; });
    return found == scout_.opaque.end() ? nullptr : &*found;
  }

  // A tensor of floats with these dimensions (kAny: what it says).
  const TensorView& Need(const std::string& name, std::vector<uint64_t> shape) const {
    if (const OpaqueTensor* opaque = FindOpaque(name)) {
      FailTensor(ErrorCode::kUnsupported, name,
                 fmt::format("is stored as {}; a Scout holds F32, F16 or BF16", opaque->dtype));
    }
    const TensorView* tensor = scout_.tensors.Find(name);
    if (tensor == nullptr) {
      FailTensor(ErrorCode::kMissingTensor, name, fmt::format("the Scout has no tensor {}", name));
    }
    if (tensor->dtype == DType::kU8) {
      FailTensor(ErrorCode::kUnsupported, name, "is stored as U8; a Scout holds F32, F16 or BF16");
    }
    bool good = tensor->shape.size() == shape.size();
    for (size_t i = 0; good && i < shape.size(); ++i) {
      good = shape[i] == kAny ? tensor->shape[i] != 0 : tensor->shape[i] == shape[i];
    }
    if (!good) {
      std::vector<std::string> needed;
      for (const uint64_t size : shape) {
        needed.push_back(size == kAny ? "at least 1" : std::to_string(size));
      }
      FailTensor(ErrorCode::kParse, name,
                 fmt::format("has shape [{}]; the vault needs [{}]", fmt::join(tensor->shape, ", "),
                             fmt::join(needed, ", ")));
    }
    return *tensor;
  }
  void NeedIfThere(const std::string& name, std::vector<uint64_t> shape) const {
    if (Has(name)) Need(name, std::move(shape));
  }

  // --- the ends and the constants ---

  void CheckEnds() {
    const Header& header = vault_.header;
    const std::string name = "model.embed_tokens.weight";
    const TensorView& embed = Need(name, {kAny, kAny});
    if (embed.shape[1] != header.d_model) {
      FailVault("header.d_model",
                fmt::format("is {}, {} has {} columns", header.d_model, name, embed.shape[1]));
    }
    if (embed.shape[0] != header.vocab_size) {
      FailVault("header.vocab_size",
                fmt::format("is {}, {} has {} rows", header.vocab_size, name, embed.shape[0]));
    }
    out_.hidden_size = header.d_model;
    out_.vocab_size = header.vocab_size;
    Need("model.norm.weight", {header.d_model});
    out_.tied = !Has("lm_head.weight");
    if (!out_.tied) Need("lm_head.weight", {header.vocab_size, header.d_model});
  }

  static std::string Layer(uint32_t index) { return fmt::format("model.layers.{}.", index); }

  uint32_t CountLayers() const {
    uint32_t layers = 0;
    while (Has(Layer(layers) + "input_layernorm.weight")) ++layers;
    // A later layer makes the one that is not there a gap.
    for (const TensorView& tensor : scout_.tensors.views()) {
      if (!tensor.name.starts_with("model.layers.") ||
          !tensor.name.ends_with(".input_layernorm.weight")) {
        continue;
      }
      const std::string number = tensor.name.substr(13, tensor.name.find('.', 13) - 13);
      if (number.size() > 9 || number.find_first_not_of("0123456789") != number.npos) continue;
      if (std::stoul(number) >= layers) Need(Layer(layers) + "input_layernorm.weight", {kAny});
    }
    if (layers == 0) Need(Layer(0) + "input_layernorm.weight", {kAny});
    const uint32_t last = vault_.layers.rbegin()->first;
    if (last < layers) return layers;
    const auto entry = std::find_if(vault_.experts.begin(), vault_.experts.end(),
                                    [&](const Expert& e) { return e.entry.layer_id == last; });
    FailVault(fmt::format("table[{}].layer_id", entry - vault_.experts.begin()),
              fmt::format("is {}, the Scout has {} layers", last, layers));
  }

  void TakeExperts() {
    out_.num_experts = vault_.header.max_experts_per_layer;
    arch_.moe_ffn_dim = 0;
    for (const Expert& expert : vault_.experts) {
      arch_.moe_ffn_dim = std::max(arch_.moe_ffn_dim, expert.tensors[0].rows);
    }
  }

  // What a vault without an arch block means.
  ArchBlock LegacyArch() {
    ArchBlock arch;
    arch.flags = kNormTopk;
    arch.rope_theta = kLegacyTheta;
    arch.head_dim = kLegacyHeadDim;
    arch.moe_top_k = std::min(kLegacyTopK, vault_.header.max_experts_per_layer);
    arch.rms_norm_eps = kLegacyEps;
    const auto heads = [&](const char* role) {
      const std::string name = Layer(0) + "self_attn." + role + "_proj.weight";
      const uint64_t rows = Need(name, {kAny, out_.hidden_size}).shape[0];
      if (rows % kLegacyHeadDim != 0 || rows / kLegacyHeadDim > UINT32_MAX) {
        FailLegacyHeads(fmt::format("{} has {} rows", name, rows));
      }
      return static_cast<uint32_t>(rows / kLegacyHeadDim);
    };
    arch.num_heads = heads("q");
    arch.num_kv_heads = heads("k");
    if (arch.num_heads % arch.num_kv_heads != 0) {
      FailLegacyHeads(fmt::format("{} query heads are no multiple of {} key heads", arch.num_heads,
                                  arch.num_kv_heads));
    }
    for (const char* role : {"q", "k"}) {
      const std::string name = Layer(0) + "self_attn." + role + "_norm.weight";
      if (!Has(name)) continue;
      const uint64_t length = Need(name, {kAny}).shape[0];
      const uint64_t all =
          uint64_t{kLegacyHeadDim} * (*role == 'q' ? arch.num_heads : arch.num_kv_heads);
      if (length != kLegacyHeadDim && length != all) {
        FailLegacyHeads(fmt::format("{} has {} elements", name, length));
      }
    }
    Warn("header.version",
         fmt::format("a v1 vault has no constants of its model; assumed: rope_theta 1e6, top-{} "
                     "with weights renormalized, head_dim {}, rms_norm_eps 1e-6 (vault upgrade "
                     "writes those of a config.json)",
                     arch.moe_top_k, kLegacyHeadDim));
    return arch;
  }

  [[noreturn]] void FailLegacyHeads(const std::string& reason) const {
    FailVault("head_dim", fmt::format("a v1 vault means head_dim {}, but {}: this one needs an "
                                      "arch block (vault upgrade --config)",
                                      kLegacyHeadDim, reason));
  }

  // --- a layer ---

  void CheckLayer(uint32_t index) {
    const std::string prefix = Layer(index);
    Need(prefix + "input_layernorm.weight", {out_.hidden_size});
    Need(prefix + "post_attention_layernorm.weight", {out_.hidden_size});
    CheckAttention(index, prefix + "self_attn.");
    const auto layer = vault_.layers.find(index);
    const std::string mlp = prefix + "mlp.";
    const bool dense = Has(mlp + "gate_proj.weight");
    if (index == 0) arch_.Set(kHasDenseLayer0, dense);
    if (layer == vault_.layers.end()) {
      if (Has(mlp + "gate.weight") && !dense) {
        FailTensor(ErrorCode::kParse, mlp + "gate.weight",
                   fmt::format("is a router, but the vault has no experts of layer {}", index));
      }
      const uint32_t width = CheckFfn(mlp);
      if (first_dense_ == 0) first_dense_ = width;
      return;
    }
    if (dense) {
      FailTensor(ErrorCode::kParse, mlp + "gate_proj.weight",
                 fmt::format("makes layer {} dense, but the vault has experts of it", index));
    }
    Need(mlp + "gate.weight", {layer->second, out_.hidden_size});
    CheckShared(mlp);
  }

  void CheckAttention(uint32_t index, const std::string& prefix) {
    const uint64_t hidden = out_.hidden_size;
    const uint64_t q_rows = uint64_t{arch_.num_heads} * arch_.head_dim;
    const uint64_t kv_rows = uint64_t{arch_.num_kv_heads} * arch_.head_dim;
    const bool by_arch = !out_.arch_json.empty();  // heads may differ by layer: binding checks them
    // Latent attention and recurrent layers, likewise.
    if (by_arch && !Has(prefix + "k_proj.weight")) return;
    if (index == 0 && vault_.arch) {
      const auto compare = [&](const char* role, const char* field, uint64_t rows, uint32_t heads) {
        const std::string name = prefix + role + "_proj.weight";
        const uint64_t stored = Need(name, {kAny, hidden}).shape[0];
        const bool with_gates = by_arch && *role == 'q' && stored == 2 * rows;
        if (stored == rows || with_gates) return;
        FailVault(std::string("arch.") + field,
                  fmt::format("{} heads of head_dim {} mean {} rows, {} has {}", heads,
                              arch_.head_dim, rows, name, stored));
      };
      compare("q", "num_heads", q_rows, arch_.num_heads);
      compare("k", "num_kv_heads", kv_rows, arch_.num_kv_heads);
    }
    const uint64_t q = by_arch && index > 0 ? kAny : q_rows;
    Need(prefix + "q_proj.weight", {by_arch ? kAny : q, hidden});
    Need(prefix + "k_proj.weight", {kv_rows, hidden});
    Need(prefix + "v_proj.weight", {kv_rows, hidden});
    Need(prefix + "o_proj.weight", {hidden, q});
    NeedIfThere(prefix + "q_proj.bias", {q});
    NeedIfThere(prefix + "k_proj.bias", {kv_rows});
    NeedIfThere(prefix + "v_proj.bias", {kv_rows});
    NeedIfThere(prefix + "o_proj.bias", {hidden});
    CheckNorm(prefix + "q_norm.weight", q);
    CheckNorm(prefix + "k_norm.weight", kv_rows);
    if (index == 0) arch_.Set(kHasQkNorm, Has(prefix + "q_norm.weight"));
  }

  // Of each head, or of all together.
  void CheckNorm(const std::string& name, uint64_t all) const {
    if (!Has(name)) return;
    const uint64_t length = Need(name, {kAny}).shape[0];
    if (length != arch_.head_dim) Need(name, {all});
  }

  uint32_t CheckFfn(const std::string& prefix) const {
    const uint64_t hidden = out_.hidden_size;
    const uint64_t width = Need(prefix + "gate_proj.weight", {kAny, hidden}).shape[0];
    Need(prefix + "up_proj.weight", {width, hidden});
    Need(prefix + "down_proj.weight", {hidden, width});
    return static_cast<uint32_t>(std::min<uint64_t>(width, UINT32_MAX));
  }

  // DeepSeek's plural first, then Qwen's singular.
  void CheckShared(const std::string& mlp) {
    for (const char* spelling : {"shared_experts.", "shared_expert."}) {
      bool there = false;
      for (const std::string_view projection : kProjections) {
        there = there || Has(fmt::format("{}{}{}.weight", mlp, spelling, projection));
      }
      if (!there) continue;
      shared_width_ = std::max(shared_width_, CheckFfn(mlp + spelling));
      NeedIfThere(mlp + "shared_expert_gate.weight", {1, out_.hidden_size});
      return;
    }
  }

  // --- the two sources against each other ---

  void CheckTopK() const {
    for (const auto& [layer, count] : vault_.layers) {
      if (arch_.moe_top_k <= count) continue;
      FailVault(vault_.arch ? "arch.moe_top_k" : "moe_top_k",
                fmt::format("{} of the {} experts of layer {}", arch_.moe_top_k, count, layer));
    }
  }

  // Of what the block says about the tensors.
  void CompareWith(const ArchBlock& said) {
    const auto compare = [&](const std::string& field, auto said_value, auto found) {
      if (said_value == found) return;
      Warn("arch." + field,
           fmt::format("the arch block says {}, the tensors {}; they count", said_value, found));
    };
    compare("flags.has_qk_norm", said.Has(kHasQkNorm), arch_.Has(kHasQkNorm));
    compare("flags.has_dense_layer_0", said.Has(kHasDenseLayer0), arch_.Has(kHasDenseLayer0));
    compare("num_hidden_layers", said.num_hidden_layers, arch_.num_hidden_layers);
    compare("shared_expert_ffn_dim", said.shared_expert_ffn_dim, shared_width_);
    if (first_dense_ != 0) compare("dense_ffn_dim", said.dense_ffn_dim, first_dense_);
    for (const Expert& expert : vault_.experts) {
      if (expert.tensors[0].rows == said.moe_ffn_dim) continue;
      compare("moe_ffn_dim", said.moe_ffn_dim, expert.tensors[0].rows);
      break;
    }
  }

  const VaultTables& vault_;
  const std::string& vault_path_;
  const ScoutFile& scout_;
  Geometry out_;
  ArchBlock arch_;             // becomes out_.arch
  uint32_t first_dense_ = 0;   // width of the first dense layer, 0 = none
  uint32_t shared_width_ = 0;  // the widest shared expert
};

void CheckKey(const VaultTables& vault, Bytes file, const ScoutFile& scout) {
  const auto stored = scout.metadata.find(kKeyName);
  if (stored == scout.metadata.end()) return;
  const std::string key = VaultKey(vault, file);
  if (stored->second == key) return;
  throw Error(ErrorCode::kHashMismatch,
              fmt::format("the Scout belongs to another vault: its key is {}, this vault's {}",
                          stored->second, key),
              {scout.path, std::string("header.__metadata__.") + kKeyName});
}

}  // namespace

ScoutFile ScoutFile::Open(const std::string& path, size_t more) {
  ScoutFile scout;
  scout.path = path;
  scout.file = MappedFile::Open(path);
  SafetensorsHeader header = ParseSafetensors(scout.file->bytes(), path);
  scout.metadata = std::move(header.metadata);
  scout.tensors.Reserve(header.entries.size() + more);
  for (SafetensorsEntry& entry : header.entries) {
    if (entry.dtype) {
      // The parser refuses names that are there twice.
      scout.tensors.Add(ViewOf(std::move(entry), scout.file->bytes(), 1));
    } else {
      scout.opaque.push_back(OpaqueOf(std::move(entry), scout.file->bytes(), 1));
    }
  }
  return scout;
}

Geometry CheckPair(const VaultTables& vault, const std::string& vault_path, Bytes vault_file,
                   const ScoutFile& scout) {
  Geometry geometry = PairChecker(vault, vault_path, scout).Run();
  CheckKey(vault, vault_file, scout);
  return geometry;
}

std::string VaultKey(const VaultTables& vault, Bytes file) {
  Hash64 hash;
  hash.Update(file.subspan(kHeaderSize, TablesEnd(vault.experts.size()) - kHeaderSize));
  for (const auto& [layer, count] : vault.layers) {
    const ExpertEntry& entry = vault.experts[*vault.Find(layer, 0)].entry;
    hash.Update(file.subspan(entry.byte_offset, std::min(entry.raw_size, kKeyBlobBytes)));
  }
  return HashToHex(hash.Digest());
}

}  // namespace moewe::formats::smoe
