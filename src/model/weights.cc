#include "model/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/hash64.h"
#include "formats/tensor_values.h"
#include "model/canonical.h"
#include "model/checkpoint_view.h"
#include "model/layer_roles.h"
#include "moewe/error.h"
#include "quant/codec.h"
#include "quant/vbit.h"

namespace moewe::model {
namespace {

using formats::TensorView;
using kernels::FfnMatrices;
using kernels::Matrix;

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

constexpr uint64_t kAny = 0;  // a dimension that the tensor itself decides

Where WhereOf(const formats::Checkpoint& checkpoint, const TensorView& tensor) {
  Where where{checkpoint.files()[tensor.file_index], tensor.name, {}};
  if (tensor.file_offset != formats::kNotInFile) where.offset = tensor.file_offset;
  return where;
}

class Binder {
 public:
  Binder(const formats::Checkpoint& checkpoint, const ModelConfig& config,
         std::vector<TensorView> tensors, TensorHashes hashes, BytesToRead read, Weights* weights)
      : checkpoint_(checkpoint), config_(config), hashes_(hashes), read_(read), out_(*weights) {
    out_.tensors = std::move(tensors);
    out_.uses.resize(out_.tensors.size(), TensorUse::kNone);
    for (uint32_t i = 0; i < out_.tensors.size(); ++i) by_name_.emplace(out_.tensors[i].name, i);
  }

  void Bind() {
    const uint64_t hidden = config_.hidden_size;
    const uint64_t vocab = config_.vocab_size;
    out_.embed = BindMatrix("model.embed_tokens.weight", vocab, hidden);
    out_.final_norm = BindVector("model.norm.weight", hidden);
    if (config_.tie_word_embeddings) {
      out_.lm_head = out_.embed;
    } else if (Has("lm_head.weight")) {
      out_.lm_head = BindMatrix("lm_head.weight", vocab, hidden);
    } else {
      Missing(
          "lm_head.weight",
          "the model has no output head: the config does not tie it to the embedding and the file "
          "lacks it");
    }
    out_.layers.resize(config_.num_layers);
    for (uint32_t i = 0; i < config_.num_layers; ++i) {
      BindLayer(fmt::format("model.layers.{}.", i), config_.layers[i], &out_.layers[i]);
    }
    if (config_.mtp_runs) BindMtp();
    CheckExpertCount();
    RefuseUnknownTensors();
    CountBytes();
  }

 private:
  // --- one tensor ---

  bool Has(const std::string& name) const { return by_name_.contains(name); }

  Where WhereOf(const TensorView& tensor) const { return model::WhereOf(checkpoint_, tensor); }

  [[noreturn]] void Missing(const std::string& name, const std::string& why) const {
    throw Error(ErrorCode::kMissingTensor, why, {checkpoint_.files().front(), name});
  }

  [[noreturn]] void WrongShape(const TensorView& tensor, const std::string& expected) const {
    throw Error(ErrorCode::kParse,
                fmt::format("{} has shape {}; the model needs {}", tensor.name,
                            ShapeText(tensor.shape), expected),
                WhereOf(tensor));
  }

  uint32_t Take(const std::string& name, TensorUse use) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) Missing(name, fmt::format("the file has no tensor {}", name));
    out_.uses[found->second] = use;
    return found->second;
  }

  bool MayRead(const TensorView& tensor, TensorUse use) const {
    if (read_ != BytesToRead::kTrunk) return read_ == BytesToRead::kAll;
    return use == TensorUse::kTrunk || tensor.file_offset == formats::kNotInFile;
  }

  void VerifyUnlessExpert(const TensorView& tensor, TensorUse use) const {
    if (hashes_ == TensorHashes::kVerifyAllButExperts && use == TensorUse::kTrunk) {
      VerifyTensor(checkpoint_, tensor);
    }
  }

  // A matrix of `rows` x `cols` (kAny: what the tensor says), checked and ready for kernels.
  Matrix BindMatrix(const std::string& name, uint64_t rows, uint64_t cols,
                    uint32_t* expert_tensor = nullptr) {
    const TensorUse use = expert_tensor == nullptr ? TensorUse::kTrunk : TensorUse::kExpert;
    const uint32_t index = Take(name, use);
    const TensorView& tensor = out_.tensors[index];
    if (expert_tensor != nullptr) *expert_tensor = index;
    const quant::MatrixShape shape = tensor.matrix();
    if (tensor.shape.empty() || tensor.shape.size() > 2 || (rows != kAny && shape.rows != rows) ||
        (cols != kAny && shape.cols != cols)) {
      WrongShape(tensor, fmt::format("[{}, {}]", rows == kAny ? "any" : std::to_string(rows),
                                     cols == kAny ? "any" : std::to_string(cols)));
    }
    constexpr uint64_t kLimit = std::numeric_limits<int32_t>::max();
    if (shape.rows == 0 || shape.cols == 0 || shape.rows > kLimit || shape.cols > kLimit) {
      WrongShape(tensor, "dimensions between 1 and 2^31 - 1");
    }
    RequireWeights(tensor);
    Matrix matrix{tensor.dtype, static_cast<uint32_t>(shape.rows),
                  static_cast<uint32_t>(shape.cols), tensor.bytes};
    if (!MayRead(tensor, use)) return matrix;
    if (tensor.made != nullptr) out_.held.emplace_back(tensor);
    CheckEncoding(checkpoint_, tensor);
    VerifyUnlessExpert(tensor, use);
    if (tensor.dtype == DType::kVbit) {
      out_.row_starts.push_back(quant::VbitRowStarts(tensor.dtype, tensor.bytes, shape));
      matrix.row_starts = out_.row_starts.back().data();
    }
    return matrix;
  }

  void RequireWeights(const TensorView& tensor) const {
    if (formats::TensorValues(tensor).known() && tensor.dtype != DType::kU8) return;
    throw Error(ErrorCode::kUnsupported,  // opaque bytes are no weights
                fmt::format("{} is stored as {}, which is not a dtype of weights", tensor.name,
                            DTypeName(tensor.dtype)),
                WhereOf(tensor));
  }

  // A vector of `size` elements as f32.
  std::vector<float> BindVector(const std::string& name, uint64_t size, uint64_t or_size = 0) {
    const TensorView& tensor = out_.tensors[Take(name, TensorUse::kTrunk)];
    const quant::MatrixShape shape = tensor.matrix();
    if (shape.rows != 1 || (shape.cols != size && (or_size == 0 || shape.cols != or_size))) {
      WrongShape(tensor, or_size == 0 || or_size == size
                             ? fmt::format("[{}]", size)
                             : fmt::format("[{}] or [{}]", size, or_size));
    }
    if (!MayRead(tensor, TensorUse::kTrunk)) return std::vector<float>(shape.cols);
    const formats::HeldBytes held(tensor);
    VerifyUnlessExpert(tensor, TensorUse::kTrunk);
    return quant::Decode(tensor.dtype, tensor.bytes, shape, WhereOf(tensor));
  }

  // `count` elements of whatever shape.
  std::vector<float> BindElements(const std::string& name, uint64_t count) {
    const TensorView& tensor = out_.tensors[Take(name, TensorUse::kTrunk)];
    const quant::MatrixShape shape = tensor.matrix();
    if (shape.rows * shape.cols != count) WrongShape(tensor, fmt::format("{} elements", count));
    if (!MayRead(tensor, TensorUse::kTrunk)) return std::vector<float>(count);
    VerifyUnlessExpert(tensor, TensorUse::kTrunk);
    return quant::Decode(tensor.dtype, tensor.bytes, shape, WhereOf(tensor));
  }

  std::vector<float> BindOptional(const std::string& name, uint64_t size, uint64_t or_size = 0) {
    return Has(name) ? BindVector(name, size, or_size) : std::vector<float>();
  }

  // --- a layer ---

  void BindMtp() {
    const uint64_t hidden = config_.hidden_size;
    MtpWeights& mtp = out_.mtp.emplace();
    mtp.join = BindMatrix(Named(roles::kMtp, roles::kMtpJoin), hidden, 2 * hidden);
    mtp.embed_norm = BindVector(Named(roles::kMtp, roles::kMtpEmbedNorm), hidden);
    mtp.hidden_norm = BindVector(Named(roles::kMtp, roles::kMtpHiddenNorm), hidden);
    mtp.norm = BindVector(Named(roles::kMtp, roles::kMtpNorm), hidden);
    BindLayer(Named(roles::kMtp, "layers.0."), config_.LayerOfVisit(config_.num_visits()),
              &mtp.layer);
  }

  void BindLayer(const std::string& prefix, const LayerConfig& shape, LayerWeights* bound) {
    LayerWeights& layer = *bound;
    const uint64_t hidden = config_.hidden_size;
    layer.attention_norm = BindVector(Named(prefix, roles::kInputNorm), hidden);
    // Families with norms on both sides of a block call the one after attention "post_attention";
    // elsewhere that is the name of the FFN's input norm.
    if (Has(Named(prefix, roles::kPreFfnNorm))) {
      layer.attention_post_norm = BindVector(Named(prefix, roles::kPostAttentionNorm), hidden);
      layer.ffn_norm = BindVector(Named(prefix, roles::kPreFfnNorm), hidden);
      layer.ffn_post_norm = BindVector(Named(prefix, roles::kPostFfnNorm), hidden);
    } else {
      layer.ffn_norm = BindVector(Named(prefix, roles::kPostAttentionNorm), hidden);
    }
    switch (shape.mixer) {
      case MixerKind::kAttention:
        BindAttention(prefix, shape, &layer.attention);
        break;
      case MixerKind::kMla:
        BindMla(prefix, shape, &layer.mla);
        break;
      case MixerKind::kGatedDeltaNet:
        BindGatedDeltaNet(prefix, &layer.linear);
        break;
      case MixerKind::kKda:
        BindKda(prefix, &layer.linear);
        break;
      case MixerKind::kShortConv:
        BindShortConv(prefix, &layer.short_conv);
        break;
    }
    layer.is_moe = Has(Named(prefix, roles::kRouter));
    if (layer.is_moe) {
      BindMoe(prefix, &layer.moe);
    } else {
      layer.ffn = BindFfn(Named(prefix, roles::kFfn), Stated(config_.intermediate_size), nullptr);
    }
  }

  static std::string Named(std::string_view prefix, std::string_view role) {
    return std::string(prefix).append(role);
  }

  // A width or count that a Hugging Face config states is what its tensors must have. That of a CMF
  // file is nominal: a model that was cut keeps it, and its layers have what is left.
  uint64_t Stated(uint64_t size) const {
    return checkpoint_.kind() == formats::CheckpointKind::kHuggingFace ? size : kAny;
  }

  void BindAttention(const std::string& prefix, const LayerConfig& shape, AttentionWeights* out) {
    const uint64_t hidden = config_.hidden_size;
    const uint64_t q_rows = uint64_t{shape.num_heads} * shape.head_dim;
    const uint64_t kv_rows = uint64_t{shape.num_kv_heads} * shape.head_dim;
    out->gate_in_q = HasQueryGate(prefix, q_rows);
    const uint64_t q_all = out->gate_in_q ? 2 * q_rows : q_rows;
    out->q = BindMatrix(Named(prefix, roles::kQ), q_all, hidden);
    out->k = BindMatrix(Named(prefix, roles::kK), kv_rows, hidden);
    out->v = BindMatrix(Named(prefix, roles::kV), kv_rows, hidden);
    out->o = BindMatrix(Named(prefix, roles::kO), hidden, q_rows);
    out->q_bias = BindOptional(Named(prefix, roles::kQBias), q_all);
    out->k_bias = BindOptional(Named(prefix, roles::kKBias), kv_rows);
    out->v_bias = BindOptional(Named(prefix, roles::kVBias), kv_rows);
    out->o_bias = BindOptional(Named(prefix, roles::kOBias), hidden);
    out->q_norm =
        BindOptional(Named(prefix, roles::kQNorm), shape.head_dim, out->gate_in_q ? 0 : q_rows);
    out->k_norm = BindOptional(Named(prefix, roles::kKNorm), shape.head_dim, kv_rows);
    out->sinks = BindOptional(Named(prefix, roles::kSinks), shape.num_heads);
    BindOutputGate(prefix, shape, out);
  }

  // Whether a head of the query projection has as many rows again.
  bool HasQueryGate(const std::string& prefix, uint64_t q_rows) const {
    const auto found = by_name_.find(Named(prefix, roles::kQ));
    if (found == by_name_.end()) return false;
    const TensorView& tensor = out_.tensors[found->second];
    return tensor.shape.size() == 2 && tensor.shape[0] == 2 * q_rows;
  }

  void BindOutputGate(const std::string& prefix, const LayerConfig& shape, AttentionWeights* out) {
    const std::string name = Named(prefix, roles::kOutputGate);
    if (!Has(name)) return;
    out->output_gate = BindMatrix(name, kAny, config_.hidden_size);
    const TensorView& tensor = out_.tensors[by_name_.at(name)];
    const uint64_t channels = uint64_t{shape.num_heads} * shape.head_dim;
    const uint64_t rows = out->output_gate.rows;
    if (rows != shape.num_heads && rows != channels) {
      WrongShape(tensor, fmt::format("[{}, {}] or [{}, {}]", shape.num_heads, config_.hidden_size,
                                     channels, config_.hidden_size));
    }
    if (out->gate_in_q) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} is a second output gate beside that of the query projection",
                              tensor.name),
                  WhereOf(tensor));
    }
  }

  void BindMla(const std::string& prefix, const LayerConfig& shape, MlaWeights* out) {
    const uint64_t hidden = config_.hidden_size;
    const uint64_t heads = shape.num_heads;
    const MlaConfig& mla = config_.mla;
    const uint64_t q_rows = heads * shape.head_dim;
    if (mla.q_lora_rank == 0) {
      out->q = BindMatrix(Named(prefix, roles::kQ), q_rows, hidden);
    } else {
      out->q_down = BindMatrix(Named(prefix, roles::kQDown), mla.q_lora_rank, hidden);
      out->q_down_norm = BindVector(Named(prefix, roles::kQDownNorm), mla.q_lora_rank);
      out->q_up = BindMatrix(Named(prefix, roles::kQUp), q_rows, mla.q_lora_rank);
    }
    out->kv_down = BindMatrix(Named(prefix, roles::kKvDown), mla.key_width(), hidden);
    out->kv_down_norm = BindVector(Named(prefix, roles::kKvDownNorm), mla.kv_lora_rank);
    out->kv_up = BindMatrix(Named(prefix, roles::kKvUp),
                            heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank);
    if (Has(Named(prefix, roles::kOutputGate))) {
      out->gate = BindMatrix(Named(prefix, roles::kOutputGate), heads, hidden);
    }
    out->o = BindMatrix(Named(prefix, roles::kO), hidden, heads * mla.v_head_dim);
  }

  void BindGatedDeltaNet(const std::string& prefix, LinearWeights* out) {
    const uint64_t hidden = config_.hidden_size;
    const LinearConfig& linear = config_.linear;
    if (Has(Named(prefix, roles::kLinearQkvz))) {
      out->qkvz = BindMatrix(Named(prefix, roles::kLinearQkvz),
                             uint64_t{linear.channels()} + linear.values(), hidden);
      out->ba =
          BindMatrix(Named(prefix, roles::kLinearBa), uint64_t{2} * linear.value_heads, hidden);
    } else {
      out->qkv = BindMatrix(Named(prefix, roles::kLinearQkv), linear.channels(), hidden);
      out->gate = BindMatrix(Named(prefix, roles::kLinearGate), linear.values(), hidden);
      out->beta = BindMatrix(Named(prefix, roles::kLinearBeta), linear.value_heads, hidden);
      out->decay = BindMatrix(Named(prefix, roles::kLinearDecay), linear.value_heads, hidden);
    }
    out->out = BindMatrix(Named(prefix, roles::kLinearOut), hidden, linear.values());
    out->conv = BindConv({Named(prefix, roles::kLinearConv)}, {linear.channels()});
    out->rate = Rates(Named(prefix, roles::kLinearRate), 1);
    out->decay_bias = BindVector(Named(prefix, roles::kLinearDecayBias), linear.value_heads);
    out->norm = BindVector(Named(prefix, roles::kLinearNorm), linear.value_dim);
  }

  void BindKda(const std::string& prefix, LinearWeights* out) {
    const uint64_t hidden = config_.hidden_size;
    const LinearConfig& linear = config_.linear;
    out->q = BindMatrix(Named(prefix, roles::kKdaQ), linear.keys(), hidden);
    out->k = BindMatrix(Named(prefix, roles::kKdaK), linear.keys(), hidden);
    out->v = BindMatrix(Named(prefix, roles::kKdaV), linear.values(), hidden);
    const auto one_or_two = [&](std::string_view whole, std::string_view down, std::string_view up,
                                uint64_t rows, std::array<Matrix*, 3> to) {
      if (Has(Named(prefix, whole))) {
        *to[0] = BindMatrix(Named(prefix, whole), rows, hidden);
        return;
      }
      *to[1] = BindMatrix(Named(prefix, down), kAny, hidden);
      *to[2] = BindMatrix(Named(prefix, up), rows, to[1]->rows);
      if (to[1]->rows > rows) {
        WrongShape(out_.tensors[by_name_.at(Named(prefix, down))],
                   fmt::format("at most {} rows", rows));
      }
    };
    one_or_two(roles::kKdaGate, roles::kKdaGateDown, roles::kKdaGateUp, linear.values(),
               {&out->gate, &out->gate_down, &out->gate_up});
    one_or_two(roles::kKdaDecay, roles::kKdaDecayDown, roles::kKdaDecayUp, linear.keys(),
               {&out->decay, &out->decay_down, &out->decay_up});
    out->beta = BindMatrix(Named(prefix, roles::kKdaBeta), linear.value_heads, hidden);
    out->out = BindMatrix(Named(prefix, roles::kKdaOut), hidden, linear.values());
    out->conv = BindConv({Named(prefix, roles::kKdaQConv), Named(prefix, roles::kKdaKConv),
                          Named(prefix, roles::kKdaVConv)},
                         {linear.keys(), linear.keys(), linear.values()});
    out->rate = Rates(Named(prefix, roles::kKdaRate), linear.key_dim);
    out->decay_bias = BindElements(Named(prefix, roles::kKdaDecayBias), linear.keys());
    out->norm = BindVector(Named(prefix, roles::kKdaNorm), linear.value_dim);
  }

  void BindShortConv(const std::string& prefix, ShortConvWeights* out) {
    const uint64_t hidden = config_.hidden_size;
    out->in = BindMatrix(Named(prefix, roles::kShortConvIn), 3 * hidden, hidden);
    out->out = BindMatrix(Named(prefix, roles::kShortConvOut), hidden, hidden);
    out->conv = BindConv({Named(prefix, roles::kShortConv)}, {hidden});
  }

  // exp(A_log) of each head, `times` over.
  std::vector<float> Rates(const std::string& name, uint64_t times) {
    std::vector<float> rates;
    for (const float log : BindElements(name, config_.linear.value_heads)) {
      rates.insert(rates.end(), times, std::exp(log));
    }
    return rates;
  }

  // Convolutions side by side, each stored as [channels, 1, taps], as [taps, all channels].
  std::vector<float> BindConv(const std::vector<std::string>& names,
                              const std::vector<uint64_t>& channels) {
    const uint64_t taps = config_.linear.conv_taps;
    std::vector<float> stored;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::vector<float> part = BindElements(names[i], channels[i] * taps);
      stored.insert(stored.end(), part.begin(), part.end());
    }
    const uint64_t all = stored.size() / taps;
    std::vector<float> conv(stored.size());
    for (uint64_t c = 0; c < all; ++c) {
      for (uint64_t t = 0; t < taps; ++t) conv[t * all + c] = stored[c * taps + t];
    }
    return conv;
  }

  // `width` rows of gate and up; kAny: as many as there are.
  FfnMatrices BindFfn(const std::string& prefix, uint64_t width,
                      std::array<uint32_t, 3>* expert_tensors) {
    const uint64_t hidden = config_.hidden_size;
    const auto index = [&](size_t at) {
      return expert_tensors == nullptr ? nullptr : &(*expert_tensors)[at];
    };
    FfnMatrices ffn;
    ffn.gate = BindMatrix(Named(prefix, roles::kGate), width, hidden, index(0));
    ffn.up = BindMatrix(Named(prefix, roles::kUp), ffn.gate.rows, hidden, index(1));
    ffn.down = BindMatrix(Named(prefix, roles::kDown), hidden, ffn.gate.rows, index(2));
    return ffn;
  }

  void BindMoe(const std::string& prefix, MoeWeights* out) {
    const std::string router = Named(prefix, roles::kRouter);
    if (!config_.has_moe) {
      throw Error(
          ErrorCode::kParse,
          fmt::format("{} is a router, but the config has no mixture-of-experts block", router),
          WhereOf(out_.tensors[by_name_.at(router)]));
    }
    const uint64_t hidden = config_.hidden_size;
    out->router = BindMatrix(router, kAny, hidden);
    for (uint32_t e = 0; e < config_.moe.num_experts; ++e) {
      const std::string expert = fmt::format("{}{}{}.", prefix, roles::kExperts, e);
      if (!Has(Named(expert, roles::kGate))) break;
      std::array<uint32_t, 3> tensors{};
      out->experts.push_back(BindFfn(expert, Stated(config_.moe.intermediate_size), &tensors));
      out->expert_tensors.push_back(tensors);
    }
    if (out->experts.size() != out->router.rows || out->experts.empty()) {
      throw Error(ErrorCode::kParse,
                  fmt::format("{} has {} rows, but the layer has {} experts", router,
                              out->router.rows, out->experts.size()),
                  WhereOf(out_.tensors[by_name_.at(router)]));
    }
    if (out->experts.size() > most_experts_) {
      most_experts_ = out->experts.size();
      widest_router_ = by_name_.at(router);
    }
    if (config_.moe.groups > 1 && out->experts.size() != config_.moe.num_experts) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} chooses by groups of {} experts, of which the layer has {}: what "
                              "was cut has no groups",
                              router, config_.moe.num_experts, out->experts.size()),
                  WhereOf(out_.tensors[by_name_.at(router)]));
    }
    out->router_bias = BindOptional(Named(prefix, roles::kRouterBias), out->experts.size());
    out->expert_bias = BindOptional(Named(prefix, roles::kExpertBias), out->experts.size());
    BindExpertBiases(prefix, out);
    const std::string shared = Named(prefix, roles::kSharedExpert);
    if (Has(Named(shared, roles::kGate))) {
      out->shared = BindFfn(shared, Stated(config_.moe.shared_intermediate_size), nullptr);
      if (Has(Named(prefix, roles::kSharedExpertGate))) {
        out->shared_gate = BindMatrix(Named(prefix, roles::kSharedExpertGate), 1, hidden);
      }
    }
  }

  // All experts of a layer have the three biases, or none has one.
  void BindExpertBiases(const std::string& prefix, MoeWeights* out) {
    if (!Has(fmt::format("{}{}0.{}", prefix, roles::kExperts, roles::kGateBias))) return;
    for (size_t e = 0; e < out->experts.size(); ++e) {
      const std::string expert = fmt::format("{}{}{}.", prefix, roles::kExperts, e);
      FfnMatrices& ffn = out->experts[e];
      auto& biases = out->expert_biases.emplace_back();
      biases[0] = BindVector(Named(expert, roles::kGateBias), ffn.gate.rows);
      biases[1] = BindVector(Named(expert, roles::kUpBias), ffn.up.rows);
      biases[2] = BindVector(Named(expert, roles::kDownBias), ffn.down.rows);
      ffn.gate_bias = biases[0].data();
      ffn.up_bias = biases[1].data();
      ffn.down_bias = biases[2].data();
    }
  }

  // --- the whole ---

  // Layers may have fewer experts than a Hugging Face config states, but one has as many.
  void CheckExpertCount() const {
    if (most_experts_ == 0 || Stated(config_.moe.num_experts) == kAny) return;
    if (most_experts_ == config_.moe.num_experts) return;
    const TensorView& router = out_.tensors[widest_router_];
    WrongShape(router, fmt::format("[{}, {}]", config_.moe.num_experts, config_.hidden_size));
  }

  // A tensor that nothing bound would have changed the result had it been understood; a layer that
  // the config does not count, too. Prediction heads are carried, and a head that is tied may be
  // there.
  void RefuseUnknownTensors() const {
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      const TensorView& tensor = out_.tensors[i];
      if (out_.uses[i] != TensorUse::kNone) continue;
      if (!config_.mtp_runs && tensor.name.starts_with(roles::kMtp)) continue;
      if (tensor.name == "lm_head.weight" || tensor.name.ends_with("rotary_emb.inv_freq")) continue;
      std::string_view name = tensor.name;
      const auto layer = EatNumbered(&name, "model.layers.");
      if (layer && *layer >= config_.num_layers) {
        throw Error(ErrorCode::kParse,
                    fmt::format("{} belongs to layer {}, but the config has {} layers", tensor.name,
                                *layer, config_.num_layers),
                    WhereOf(tensor));
      }
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} has no place in a model of this kind", tensor.name),
                  WhereOf(tensor));
    }
  }

  void CountBytes() {
    uint64_t trunk = 0;  // read by every token
    uint64_t experts_all = 0;
    const auto size = [](const Matrix& m) { return uint64_t{m.bytes.size()}; };
    const auto ffn_size = [&](const FfnMatrices& f) {
      return size(f.gate) + size(f.up) + size(f.down);
    };
    const auto floats = [](const std::vector<float>& v) { return v.size() * sizeof(float); };
    std::vector<const LayerWeights*> layers;
    for (const LayerWeights& layer : out_.layers) layers.push_back(&layer);
    if (out_.mtp) {
      layers.push_back(&out_.mtp->layer);
      trunk += size(out_.mtp->join);
      for (const auto* v : {&out_.mtp->embed_norm, &out_.mtp->hidden_norm, &out_.mtp->norm}) {
        trunk += floats(*v);
      }
    }
    for (const LayerWeights* of_layer : layers) {
      const LayerWeights& layer = *of_layer;
      const AttentionWeights& a = layer.attention;
      trunk += size(a.q) + size(a.k) + size(a.v) + size(a.o) + size(a.output_gate);
      for (const Matrix* matrix : layer.mla.matrices()) trunk += size(*matrix);
      trunk += floats(layer.mla.q_down_norm) + floats(layer.mla.kv_down_norm);
      for (const Matrix* matrix : layer.linear.matrices()) trunk += size(*matrix);
      for (const auto* v : layer.linear.vectors()) trunk += floats(*v);
      trunk +=
          size(layer.short_conv.in) + size(layer.short_conv.out) + floats(layer.short_conv.conv);
      for (const auto* v :
           {&layer.attention_norm, &layer.attention_post_norm, &layer.ffn_norm,
            &layer.ffn_post_norm, &a.q_bias, &a.k_bias, &a.v_bias, &a.o_bias, &a.q_norm, &a.k_norm,
            &a.sinks, &layer.moe.router_bias, &layer.moe.expert_bias}) {
        trunk += floats(*v);
      }
      for (const auto& biases : layer.moe.expert_biases) {
        for (const auto& bias : biases) trunk += floats(bias);
      }
      trunk += ffn_size(layer.ffn) + ffn_size(layer.moe.shared) + size(layer.moe.router) +
               size(layer.moe.shared_gate);
      for (const FfnMatrices& expert : layer.moe.experts) experts_all += ffn_size(expert);
    }
    trunk += floats(out_.final_norm) + size(out_.lm_head);
    const uint64_t embed = size(out_.embed);
    out_.expert_bytes = experts_all;
    out_.bytes_total = trunk + experts_all + (config_.tie_word_embeddings ? 0 : embed);
  }

  const formats::Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const TensorHashes hashes_;
  const BytesToRead read_;
  Weights& out_;
  std::unordered_map<std::string_view, uint32_t> by_name_;
  size_t most_experts_ = 0;  // of a layer
  uint32_t widest_router_ = 0;
};

}  // namespace

Weights BindTensors(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                    std::vector<TensorView> tensors, TensorHashes hashes, BytesToRead read) {
  Weights weights;
  Binder(checkpoint, config, std::move(tensors), hashes, read, &weights).Bind();
  return weights;
}

Weights BindWeights(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                    TensorHashes hashes, BytesToRead read) {
  return BindTensors(checkpoint, config, CanonicalTensors(checkpoint, config), hashes, read);
}

void CheckEncoding(const formats::Checkpoint& checkpoint, const TensorView& tensor) {
  formats::TensorValues(tensor).CheckLayout(WhereOf(checkpoint, tensor));
}

void RequireComputable(const formats::Checkpoint& checkpoint, const Weights& weights) {
  for (size_t i = 0; i < weights.tensors.size(); ++i) {
    const TensorView& tensor = weights.tensors[i];
    if (weights.uses[i] == TensorUse::kNone || tensor.dtype != DType::kF8E4m3) continue;
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} is stored as {}, which moewe converts but does not compute with: "
                            "convert the model first",
                            tensor.name, DTypeName(tensor.dtype)),
                WhereOf(checkpoint, tensor));
  }
}

bool HasStoredHash(const TensorView& tensor) {
  return tensor.hash == 0 || HashBytes(tensor.bytes) == tensor.hash;
}

namespace {

// A skill's tensor is seen under the name of what it replaces; a message names what is stored.
std::string StoredName(const formats::Checkpoint& checkpoint, const TensorView& tensor) {
  const auto* view = dynamic_cast<const CheckpointView*>(&checkpoint);
  if (view == nullptr) return tensor.name;
  for (const TensorView& stored : view->base().tensors()) {
    if (stored.file_index == tensor.file_index && stored.file_offset == tensor.file_offset &&
        stored.bytes.size() == tensor.bytes.size() && !stored.bytes.empty()) {
      return stored.name;
    }
  }
  return tensor.name;
}

}  // namespace

void VerifyTensor(const formats::Checkpoint& checkpoint, const TensorView& tensor) {
  if (HasStoredHash(tensor)) return;
  const std::string name = StoredName(checkpoint, tensor);
  throw Error(ErrorCode::kHashMismatch,
              fmt::format("the bytes of {} have hash {:016x}, the directory says {:016x}", name,
                          HashBytes(tensor.bytes), tensor.hash),
              {checkpoint.files()[tensor.file_index], name, WhereOf(checkpoint, tensor).offset});
}

}  // namespace moewe::model
