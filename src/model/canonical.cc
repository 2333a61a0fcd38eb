#include "model/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "model/config_limits.h"
#include "model/fp8_config.h"
#include "model/layer_roles.h"
#include "model/name_parts.h"
#include "model/packed_experts.h"

namespace moewe::model {
namespace {

using formats::TensorView;

constexpr std::string_view kScaleSuffix = "_scale_inv";  // behind ".weight"

// What a family calls a part of a layer, and its canonical name; the beginning of a role, or all of
// it.
struct Renaming {
  std::string_view theirs, ours;
};
constexpr std::array kBeginnings = {
    Renaming{"block_sparse_moe.", "mlp."},
    Renaming{"feed_forward.", "mlp."},
    Renaming{"conv.", "short_conv."},
};
constexpr std::array kNames = {
    Renaming{"operator_norm.weight", roles::kInputNorm},
    Renaming{"ffn_norm.weight", roles::kPostAttentionNorm},
    Renaming{"self_attn.q_layernorm.weight", roles::kQNorm},
    Renaming{"self_attn.k_layernorm.weight", roles::kKNorm},
    Renaming{"self_attn.out_proj.weight", roles::kO},
    Renaming{"self_attn.dense.weight", roles::kO},
    Renaming{"kda_attn.dense.weight", roles::kKdaOut},
    Renaming{"mlp.w1.weight", "mlp.gate_proj.weight"},
    Renaming{"mlp.w3.weight", "mlp.up_proj.weight"},
    Renaming{"mlp.w2.weight", "mlp.down_proj.weight"},
    Renaming{"mlp.gate.expert_bias", roles::kExpertBias},
};

// `name` of a layer of that kind with the beginning that is canonical.
std::string CanonicalBeginning(std::string_view name, MixerKind mixer) {
  std::string_view rest = name;
  // A model whose layers are of two kinds may have one name for both.
  if (Eat(&rest, "self_attn.") || Eat(&rest, "attention.")) {
    return std::string(mixer == MixerKind::kKda ? "kda_attn." : "self_attn.").append(rest);
  }
  for (const Renaming& renaming : kBeginnings) {
    if (Eat(&rest, renaming.theirs)) return std::string(renaming.ours).append(rest);
  }
  return std::string(name);
}

// Families' own names of what roles::IsLayerRole() knows, behind a canonical beginning.
std::string Renamed(std::string_view role) {
  for (const Renaming& renaming : kNames) {
    if (role == renaming.theirs) return std::string(renaming.ours);
  }
  if (role == "mlp.gate.e_score_correction_bias" || role == "mlp.e_score_correction_bias" ||
      role == "mlp.moe_statics.e_score_correction_bias" ||
      role == "mlp.experts.e_score_correction_bias") {
    return std::string(roles::kExpertBias);
  }
  if (role == "mlp.router.bias") return std::string(roles::kRouterBias);
  if (role == "mlp.router.weight" || role == "mlp.router.layer.weight")
    return std::string(roles::kRouter);
  std::string_view rest = role;
  if (Eat(&rest, "mlp.shared_experts."))
    return std::string(roles::kSharedExpert) + std::string(rest);
  if (Eat(&rest, "mlp.experts.")) {
    if (const auto expert = EatNumber(&rest)) {
      const auto named = [&](std::string_view projection) {
        return fmt::format("mlp.experts.{}.{}.weight", *expert, projection);
      };
      if (rest == ".w1.weight") return named("gate_proj");
      if (rest == ".w3.weight") return named("up_proj");
      if (rest == ".w2.weight") return named("down_proj");
    }
  }
  return std::string(role);
}

class Mapper {
 public:
  Mapper(const formats::Checkpoint& checkpoint, const ModelConfig& config,
         std::vector<std::string>* warnings)
      : checkpoint_(checkpoint), config_(config), warnings_(warnings) {}

  std::vector<TensorView> Run() {
    out_.reserve(checkpoint_.tensors().size());
    const formats::CheckpointKind kind = checkpoint_.kind();
    if (kind == formats::CheckpointKind::kHuggingFace) ReadBlocks();
    if (kind != formats::CheckpointKind::kSmoe) {
      for (const formats::OpaqueTensor& tensor : checkpoint_.opaque_tensors()) AddOpaque(tensor);
    }
    for (const TensorView& tensor : checkpoint_.tensors()) {
      if (kind == formats::CheckpointKind::kCmf) {
        FromCmf(tensor);
      } else if (kind == formats::CheckpointKind::kSmoe) {
        FromSmoe(tensor);
      } else {
        FromHuggingFace(tensor);
      }
    }
    if (!scaled_.empty()) {  // FP8 weights came first
      std::ranges::stable_sort(out_, {}, [](const TensorView& tensor) {
        return std::pair(tensor.file_index, tensor.file_offset);
      });
    }
    for (const auto& [what, count] : skipped_) {
      if (warnings_ != nullptr) {
        warnings_->push_back(
            fmt::format("{} tensors under {} are not part of the text model and were left "
                        "out",
                        count, what));
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void Fail(ErrorCode code, const TensorView& tensor, std::string_view problem) const {
    const std::vector<std::string>& files = checkpoint_.files();
    throw Error(code, fmt::format("tensor {} {}", tensor.name, problem),
                {tensor.file_index < files.size() ? files[tensor.file_index] : "", tensor.name,
                 tensor.file_offset});
  }

  void FromCmf(const TensorView& tensor) {
    std::string_view name = tensor.name;
    if (name.starts_with("skill.")) return;
    if (Eat(&name, "model.layers.") && EatNumber(&name) && Eat(&name, ".") &&
        !roles::IsLayerRole(name)) {
      Fail(ErrorCode::kUnsupported, tensor, "has a role that is not supported yet");
    }
    out_.push_back(tensor);
  }

  // Opening a vault has found every tensor that it needs; the format lets a Scout hold others,
  // which mean nothing.
  void FromSmoe(const TensorView& tensor) {
    std::string_view name = tensor.name;
    if (name == "model.embed_tokens.weight" || name == "model.norm.weight") {
      Add(tensor, tensor.name);
    } else if (name == "lm_head.weight") {
      AddHead(tensor);
    } else if (EatNumbered(&name, "model.layers.") && Eat(&name, ".")) {
      const std::string role = Renamed(name);
      if (roles::IsLayerRole(role)) {
        Add(tensor, tensor.name.substr(0, tensor.name.size() - name.size()) + role);
      }
    }
  }

  // Blocks of FP8 weights, if the config says that there are any.
  void ReadBlocks() {
    const nlohmann::ordered_json& config = checkpoint_.config();
    if (!config.is_object()) return;
    const JsonKeys keys(config, checkpoint_.files().front(), "config");
    blocks_ = ReadFp8Blocks(keys);
    if (const auto text = keys.Object("text_config"); text && !blocks_) {
      blocks_ = ReadFp8Blocks(*text);
    }
    for (const formats::OpaqueTensor& tensor : checkpoint_.opaque_tensors()) {
      if (tensor.name.ends_with(".eh_proj.weight")) fp8_heads_.insert(tensor.name);
    }
  }

  // Element types without a codec: fp8 with scales is read; other fp8 and packed integers are
  // weights that somebody quantized; what old checkpoints keep beside their weights is not missed.
  void AddOpaque(const formats::OpaqueTensor& tensor) {
    std::string_view name = tensor.name;
    if (SkipForeignPart(name) || name.ends_with("position_ids") ||
        name.ends_with("rotary_emb.inv_freq")) {
      return;
    }
    if (blocks_ && tensor.dtype == "F8_E4M3") return FromHuggingFace(Fp8View(tensor));
    throw Error(ErrorCode::kUnsupported,
                fmt::format("tensor {} is stored as {}, which moewe cannot read: use the original "
                            "checkpoint",
                            tensor.name, tensor.dtype),
                {checkpoint_.files().front(), tensor.name});
  }

  // FP8 weights with the scales that lie beside them.
  TensorView Fp8View(const formats::OpaqueTensor& tensor) {
    TensorView view;
    view.name = tensor.name;
    view.dtype = DType::kF8E4m3;
    view.shape = tensor.shape;
    view.bytes = tensor.bytes;
    view.file_index = tensor.file_index;
    view.file_offset = tensor.file_offset;
    if (view.shape.size() != 2) Fail(ErrorCode::kParse, view, "is FP8 and must be a matrix");
    const std::string name = tensor.name + std::string(kScaleSuffix);
    const TensorView* scales = checkpoint_.Find(name);
    if (scales == nullptr) {
      throw Error(ErrorCode::kMissingTensor,
                  fmt::format("{} is FP8 and the file has no scales of it, {}", tensor.name, name),
                  {checkpoint_.files()[tensor.file_index], name});
    }
    view.scales = {scales->dtype, scales->bytes, blocks_->rows, blocks_->cols};
    const quant::MatrixShape grid = view.scales.Grid(view.matrix());
    if (scales->dtype != DType::kF32 && scales->dtype != DType::kBf16) {
      Fail(ErrorCode::kUnsupported, *scales,
           fmt::format("is {}: scales must be f32 or bf16", DTypeName(scales->dtype)));
    }
    if (scales->shape != std::vector<uint64_t>{grid.rows, grid.cols}) {
      Fail(ErrorCode::kParse, *scales,
           fmt::format("has shape [{}]; blocks of {} x {} in [{}] need [{}, {}]",
                       fmt::join(scales->shape, ", "), blocks_->rows, blocks_->cols,
                       fmt::join(view.shape, ", "), grid.rows, grid.cols));
    }
    scaled_.insert(name);
    return view;
  }

  // Companions of weights quantized by others: GPTQ and AWQ, fp8 and compressed-tensors,
  // bitsandbytes.
  static bool IsForeignQuantization(const TensorView& tensor) {
    constexpr std::array<std::string_view, 11> kParts = {
        ".qweight",      ".qzeros",           ".scales",        ".g_idx",
        ".weight_scale", ".weight_scale_inv", ".weight_packed", ".input_scale",
        ".SCB",          ".quant_map",        ".absmax"};
    return tensor.dtype == DType::kU8 ||
           std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
             return std::string_view(tensor.name).ends_with(part);
           });
  }

  // gpt-oss keeps experts in layouts of its own.
  bool OwnExpertLayouts() const {
    return config_.gate_function.function == kernels::GateFunction::kClampedSwiglu;
  }

  bool IsPackedExperts(std::string_view name) const {
    return OwnExpertLayouts() && name.find(".mlp.experts.") != name.npos &&
           (name.ends_with("_proj_blocks") || name.ends_with("_proj_scales"));
  }

  void FromHuggingFace(const TensorView& tensor) {
    std::string_view name = tensor.name;
    if (scaled_.contains(tensor.name) || SkipForeignPart(name)) return;
    if (IsForeignQuantization(tensor) && !IsPackedExperts(name)) {
      Fail(ErrorCode::kUnsupported, tensor,
           "belongs to weights quantized in a way that moewe cannot read: use the original "
           "checkpoint");
    }
    // Multimodal checkpoints: language_model.model.x, model.language_model.x,
    // language_model.lm_head.
    const bool below_model = Eat(&name, "model.language_model.");
    const bool prefixed = !below_model && Eat(&name, "language_model.");
    const bool in_model = below_model || Eat(&name, "model.");
    if (!in_model) {
      if (name == "lm_head.weight") return AddHead(tensor);
      if (!prefixed && Eat(&name, "mtp.")) return AddQwenMtp(tensor, name);
      Fail(ErrorCode::kUnsupported, tensor, "has an unknown role");
    }
    if (name.ends_with("rotary_emb.inv_freq"))
      return;  // computed from the config, as transformers does
    if (name == "embed_tokens.weight" || name == "norm.weight") {
      return Add(tensor, "model." + std::string(name));
    }
    if (name == "word_embeddings.weight") return Add(tensor, "model.embed_tokens.weight");
    if (name == "embedding_norm.weight") return Add(tensor, "model.norm.weight");
    if (Eat(&name, "layers.")) {
      const auto layer = EatNumber(&name);
      if (layer && Eat(&name, ".")) {
        if (*layer < config_.num_layers) {
          return AddLayerTensor(tensor, fmt::format("model.layers.{}.", *layer), name,
                                config_.layers[*layer].mixer);
        }
        return AddAppendedMtp(tensor, *layer, name);
      }
    }
    Fail(ErrorCode::kUnsupported, tensor, "has an unknown role");
  }

  // Vision and audio parts of multimodal checkpoints, and Ernie's prediction head, which nothing
  // here runs.
  bool SkipForeignPart(std::string_view name) {
    constexpr std::array<std::string_view, 12> kParts = {
        "vision_tower.", "vision_model.", "multi_modal_projector.", "visual.",
        "audio_tower.",  "embed_vision.", "embed_audio.",           "image_newline",
        "mtp_block.",    "mtp_emb_norm.", "mtp_hidden_norm.",       "mtp_linear_proj."};
    Eat(&name, "model.");
    for (std::string_view part : kParts) {
      if (!name.starts_with(part)) continue;
      Skip(std::string(part));
      return true;
    }
    return false;
  }

  void Skip(const std::string& what) {
    const auto it = std::find_if(skipped_.begin(), skipped_.end(),
                                 [&](const auto& entry) { return entry.first == what; });
    if (it == skipped_.end()) {
      skipped_.emplace_back(what, 1);
    } else {
      ++it->second;
    }
  }

  // A tied head repeats the embedding (ReadConfig unties one that does not).
  void AddHead(const TensorView& tensor) {
    if (!config_.tie_word_embeddings) Add(tensor, "lm_head.weight");
  }

  // The multi-token-prediction head of Qwen: mtp.*.
  void AddQwenMtp(const TensorView& tensor, std::string_view name) {
    if (name == "fc.weight") return Add(tensor, "model.mtp.eh_proj.weight");
    if (name == "pre_fc_norm_embedding.weight") return Add(tensor, "model.mtp.enorm.weight");
    if (name == "pre_fc_norm_hidden.weight") return Add(tensor, "model.mtp.hnorm.weight");
    if (name == "norm.weight") return Add(tensor, "model.mtp.norm.weight");
    if (Eat(&name, "layers.")) {
      const auto layer = EatNumber(&name);
      if (layer && Eat(&name, ".")) {
        return AddLayerTensor(tensor, fmt::format("model.mtp.layers.{}.", *layer), name);
      }
    }
    Fail(ErrorCode::kUnsupported, tensor, "has an unknown role");
  }

  // The one of DeepSeek and GLM: a layer after the last. What has none of its marks is a layer that
  // the config does not count, and a model without its last layers is another model.
  void AddAppendedMtp(const TensorView& tensor, uint32_t layer, std::string_view name) {
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - name.size());
    const std::string mark = prefix + "eh_proj.weight";
    if (checkpoint_.Find(mark) == nullptr && !fp8_heads_.contains(mark)) {
      Fail(ErrorCode::kParse, tensor,
           fmt::format("belongs to layer {}, but the config has num_hidden_layers {}", layer,
                       config_.num_layers));
    }
    if (layer != config_.num_layers) return Skip(fmt::format("model.layers.{}.", layer));
    if (name == "embed_tokens.weight" || name == "shared_head.head.weight")
      return;  // repeat the main ones
    if (name == "eh_proj.weight" || name == "enorm.weight" || name == "hnorm.weight") {
      return Add(tensor, "model.mtp." + std::string(name));
    }
    if (name == "shared_head.norm.weight") return Add(tensor, "model.mtp.norm.weight");
    AddLayerTensor(tensor, "model.mtp.layers.0.", name);
  }

  void AddLayerTensor(const TensorView& tensor, const std::string& prefix, std::string_view name,
                      MixerKind mixer = MixerKind::kAttention) {
    if (name.ends_with("rotary_emb.inv_freq")) return;
    std::string role = CanonicalBeginning(name, mixer);
    if (role == "self_attn.qkv_proj.weight" || role == "self_attn.qkv_proj.bias") {
      return SplitQkv(tensor, prefix, role);
    }
    if (role == "mlp.gate_up_proj.weight") return SplitGateUp(tensor, prefix + "mlp.");
    std::string_view own = role;
    if (OwnExpertLayouts() && Eat(&own, "mlp.experts.") && AddOwnBank(tensor, prefix, own)) return;
    std::string_view bank = role;
    if (bank.ends_with(".weight")) bank.remove_suffix(7);
    if (bank == "mlp.experts.gate_up_proj" || bank == "mlp.input_linear") {
      return SplitBank(tensor, prefix, true);
    }
    if (bank == "mlp.experts.down_proj" || bank == "mlp.output_linear") {
      return SplitBank(tensor, prefix, false);
    }
    role = Renamed(role);
    if (!roles::IsLayerRole(role)) Fail(ErrorCode::kUnsupported, tensor, "has an unknown role");
    TensorView view = tensor;
    if (role == roles::kExpertBias) {  // Ernie stores it as [1, experts]
      if (view.shape.size() == 2 && view.shape[0] == 1) view.shape.erase(view.shape.begin());
      if (view.shape.size() != 1) Fail(ErrorCode::kParse, tensor, "must be a vector");
    }
    Add(view, prefix + role);
  }

  // A view of rows [first, first + count) of the outermost dimension. Float dtypes only: their rows
  // are contiguous and of one size. `rows` is the checked outermost dimension.
  TensorView Rows(const TensorView& tensor, uint64_t first, uint64_t count) const {
    TensorView view = tensor;
    const uint64_t row_bytes = tensor.bytes.size() / tensor.shape[0];
    view.shape[0] = count;
    view.bytes = tensor.bytes.subspan(first * row_bytes, count * row_bytes);
    if (view.file_offset != formats::kNotInFile) view.file_offset += first * row_bytes;
    view.hash = 0;
    return view;
  }

  // Throws unless the tensor has `dims` dimensions, none of them 0, and float elements.
  void RequireSplittable(const TensorView& tensor, size_t dims) const {
    if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kF16 &&
        tensor.dtype != DType::kBf16) {
      Fail(ErrorCode::kUnsupported, tensor, "is fused and quantized, so it cannot be split");
    }
    if (tensor.shape.size() != dims)
      Fail(ErrorCode::kParse, tensor, fmt::format("must have {} dimensions", dims));
    for (uint64_t size : tensor.shape) {
      if (size == 0) Fail(ErrorCode::kParse, tensor, "has a dimension of 0");
    }
  }

  // [q; k; v] rows, or elements of a bias.
  void SplitQkv(const TensorView& tensor, const std::string& prefix, const std::string& role) {
    const std::string_view suffix = role.ends_with(".bias") ? ".bias" : ".weight";
    RequireSplittable(tensor, suffix == ".bias" ? 1 : 2);
    const LayerConfig& layer = config_.layers.front();
    const uint64_t q = uint64_t{layer.num_heads} * layer.head_dim;
    const uint64_t kv = uint64_t{layer.num_kv_heads} * layer.head_dim;
    if (tensor.shape[0] != q + 2 * kv) {
      Fail(ErrorCode::kParse, tensor,
           fmt::format("must have {} rows, has {}", q + 2 * kv, tensor.shape[0]));
    }
    Add(Rows(tensor, 0, q), fmt::format("{}self_attn.q_proj{}", prefix, suffix));
    Add(Rows(tensor, q, kv), fmt::format("{}self_attn.k_proj{}", prefix, suffix));
    Add(Rows(tensor, q + kv, kv), fmt::format("{}self_attn.v_proj{}", prefix, suffix));
  }

  // [gate; up] rows.
  void SplitGateUp(const TensorView& tensor, const std::string& prefix) {
    RequireSplittable(tensor, 2);
    if (tensor.shape[0] % 2 != 0)
      Fail(ErrorCode::kParse, tensor, "must have an even number of rows");
    const uint64_t half = tensor.shape[0] / 2;
    Add(Rows(tensor, 0, half), prefix + "gate_proj.weight");
    Add(Rows(tensor, half, half), prefix + "up_proj.weight");
  }

  // [experts, 2 * intermediate, hidden] with gate rows first, or [experts, hidden, intermediate].
  void SplitBank(const TensorView& tensor, const std::string& prefix, bool gate_up) {
    RequireSplittable(tensor, 3);
    if (tensor.shape[0] > kMaxExperts) Fail(ErrorCode::kParse, tensor, "has too many experts");
    const uint64_t hidden = gate_up ? tensor.shape[2] : tensor.shape[1];
    if (hidden != config_.hidden_size) {
      Fail(ErrorCode::kParse, tensor,
           fmt::format("must be [experts, {}], hidden_size is {}",
                       gate_up ? "2 x intermediate, hidden" : "hidden, intermediate",
                       config_.hidden_size));
    }
    const uint64_t experts = tensor.shape[0];
    for (uint64_t e = 0; e < experts; ++e) {
      TensorView matrix = Rows(tensor, e, 1);
      matrix.shape = {tensor.shape[1], tensor.shape[2]};
      const std::string expert = fmt::format("{}mlp.experts.{}.", prefix, e);
      if (gate_up) {
        matrix.name = tensor.name;
        SplitGateUp(matrix, expert);
      } else {
        Add(matrix, expert + "down_proj.weight");
      }
    }
  }

  // A bank of gpt-oss: rows of gate and up take turns; matrices are stored by input, or packed with
  // their scales beside them. False for what is no such bank.
  bool AddOwnBank(const TensorView& tensor, const std::string& prefix, std::string_view role) {
    const bool gate_up = Eat(&role, "gate_up_proj");
    if (!gate_up && !Eat(&role, "down_proj")) return false;
    const TensorView* scales = nullptr;
    if (role == "_blocks") {
      scales = &ScalesOf(tensor);
    } else if (role == "_scales") {
      if (checkpoint_.Find(Sibling(tensor, "_blocks")) != nullptr) return true;  // comes with them
      Fail(ErrorCode::kMissingTensor, tensor, "has no blocks beside it");
    } else if (role.empty() || role == "_bias") {
      RequireSplittable(tensor, role.empty() ? 3 : 2);
    } else {
      return false;
    }
    const uint64_t experts = tensor.shape[0];
    const uint64_t rows = scales != nullptr ? tensor.shape[1] : tensor.shape.back();
    if (experts > kMaxExperts) Fail(ErrorCode::kParse, tensor, "has too many experts");
    if (gate_up && rows % 2 != 0) {
      Fail(ErrorCode::kParse, tensor, "must have as many rows of gate as of up");
    }
    for (uint64_t e = 0; e < experts; ++e) {
      const auto bias = [&] {
        TensorView view = Rows(tensor, e, 1);
        view.shape.erase(view.shape.begin());
        return view;
      };
      const auto add = [&](std::string_view projection, RowsInTurn turn) {
        TensorView view = scales != nullptr ? UnpackedRows(tensor, *scales, e, turn,
                                                           checkpoint_.files()[scales->file_index])
                          : role == "_bias" ? gate_up ? EntriesInTurn(tensor, e, turn) : bias()
                                            : TransposedRows(tensor, e, turn);
        Add(std::move(view), fmt::format("{}{}{}.{}.{}", prefix, roles::kExperts, e, projection,
                                         role == "_bias" ? "bias" : "weight"));
      };
      if (gate_up) {
        add("gate_proj", {0, 2});
        add("up_proj", {1, 2});
      } else {
        add("down_proj", {});
      }
    }
    return true;
  }

  // The name with another ending behind "_proj".
  static std::string Sibling(const TensorView& tensor, std::string_view ending) {
    return tensor.name.substr(0, tensor.name.rfind('_')).append(ending);
  }

  // Of packed blocks, checked against them.
  const TensorView& ScalesOf(const TensorView& blocks) const {
    const TensorView* scales = checkpoint_.Find(Sibling(blocks, "_scales"));
    if (scales == nullptr) Fail(ErrorCode::kMissingTensor, blocks, "has no scales beside it");
    const auto is_u8 = [](const TensorView& tensor) { return tensor.dtype == DType::kU8; };
    std::vector<uint64_t> shape = scales->shape;
    shape.push_back(kMxfp4Group / 2);
    const bool empty = std::find(shape.begin(), shape.end(), 0u) != shape.end();
    if (shape.size() != 4 || empty || shape != blocks.shape || !is_u8(blocks) || !is_u8(*scales)) {
      Fail(ErrorCode::kParse, blocks,
           "must be bytes [experts, rows, groups, 16], and its scales [experts, rows, groups]");
    }
    return *scales;
  }

  void Add(TensorView view, std::string name) {
    if (!names_.insert(name).second) {
      Fail(ErrorCode::kParse, view, fmt::format("is a second tensor for {}", name));
    }
    view.name = std::move(name);
    out_.push_back(std::move(view));
  }

  const formats::Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::vector<std::string>* warnings_;
  std::vector<TensorView> out_;
  std::unordered_set<std::string> names_;
  std::optional<Fp8Blocks> blocks_;            // of FP8 weights
  std::unordered_set<std::string> scaled_;     // the scales of those that were met
  std::unordered_set<std::string> fp8_heads_;  // what marks prediction heads, if it is FP8
  std::vector<std::pair<std::string, size_t>> skipped_;
};

}  // namespace

std::vector<TensorView> CanonicalTensors(const formats::Checkpoint& checkpoint,
                                         const ModelConfig& config,
                                         std::vector<std::string>* warnings) {
  return Mapper(checkpoint, config, warnings).Run();
}

}  // namespace moewe::model
