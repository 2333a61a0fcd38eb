#include "model/token_bytes.h"

#include <algorithm>
#include <vector>

namespace moewe::model {
namespace {

using kernels::FfnMatrices;
using kernels::Matrix;

uint64_t SizeOf(const Matrix& matrix) { return matrix.bytes.size(); }
uint64_t SizeOf(const FfnMatrices& ffn) {
  return SizeOf(ffn.gate) + SizeOf(ffn.up) + SizeOf(ffn.down);
}
uint64_t SizeOf(const std::vector<float>& values) { return values.size() * sizeof(float); }

// `live` of `all` equal parts; the rows of one matrix are of about one size in every layout.
uint64_t Share(uint64_t bytes, uint64_t live, uint64_t all) {
  return all == 0 ? 0 : bytes / all * live + bytes % all * live / all;
}

uint64_t AttentionBytes(const AttentionWeights& a, const LayerConfig& shape,
                        const LayerMask& mask) {
  if (mask.no_heads) return SizeOf(a.o_bias);
  const uint64_t vectors = SizeOf(a.q_bias) + SizeOf(a.k_bias) + SizeOf(a.v_bias) +
                           SizeOf(a.o_bias) + SizeOf(a.q_norm) + SizeOf(a.k_norm) + SizeOf(a.sinks);
  const uint64_t of_heads = SizeOf(a.q) + SizeOf(a.output_gate);
  if (mask.heads.empty()) return of_heads + SizeOf(a.k) + SizeOf(a.v) + SizeOf(a.o) + vectors;
  uint64_t kv_heads = 0;  // that a live head reads; heads are ascending
  uint32_t last = UINT32_MAX;
  for (const uint32_t head : mask.heads) {
    const uint32_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
    kv_heads += kv_head != last ? 1 : 0;
    last = kv_head;
  }
  return Share(of_heads, mask.heads.size(), shape.num_heads) +
         Share(SizeOf(a.k) + SizeOf(a.v), kv_heads, shape.num_kv_heads) + SizeOf(a.o) + vectors;
}

uint64_t MlaBytes(const MlaWeights& mla, const LayerMask& mask) {
  if (mask.no_heads) return 0;
  uint64_t bytes = SizeOf(mla.q_down_norm) + SizeOf(mla.kv_down_norm);
  for (const Matrix* matrix : mla.matrices()) bytes += SizeOf(*matrix);
  return bytes;
}

uint64_t LinearBytes(const LinearWeights& linear) {
  uint64_t bytes = 0;
  for (const Matrix* matrix : linear.matrices()) bytes += SizeOf(*matrix);
  for (const auto* vector : linear.vectors()) bytes += SizeOf(*vector);
  return bytes;
}

uint64_t MixerBytes(const LayerWeights& layer, const LayerConfig& shape, const LayerMask& mask) {
  switch (shape.mixer) {
    case MixerKind::kAttention:
      return AttentionBytes(layer.attention, shape, mask);
    case MixerKind::kMla:
      return MlaBytes(layer.mla, mask);
    case MixerKind::kGatedDeltaNet:
    case MixerKind::kKda:
      return LinearBytes(layer.linear);
    case MixerKind::kShortConv:
      return SizeOf(layer.short_conv.in) + SizeOf(layer.short_conv.out) +
             SizeOf(layer.short_conv.conv);
  }
  return 0;
}

uint64_t FfnBytes(const FfnMatrices& ffn, const LayerMask& mask) {
  if (mask.no_neurons) return 0;
  if (mask.neurons.empty()) return SizeOf(ffn);
  return Share(SizeOf(ffn.gate) + SizeOf(ffn.up), mask.neurons.size(), ffn.gate.rows) +
         SizeOf(ffn.down);
}

uint64_t MoeBytes(const MoeWeights& moe, const ModelConfig& config, const LayerMask& mask) {
  const uint64_t all = moe.experts.size();
  uint64_t routable = all;
  uint64_t routable_bytes = 0;
  if (mask.experts.empty()) {
    for (const FfnMatrices& expert : moe.experts) routable_bytes += SizeOf(expert);
  } else {
    routable = mask.experts.size();
    for (const uint32_t expert : mask.experts) routable_bytes += SizeOf(moe.experts[expert]);
  }
  uint64_t bias_bytes = 0;
  for (const auto& biases : moe.expert_biases) {
    for (const std::vector<float>& bias : biases) bias_bytes += SizeOf(bias);
  }
  const uint64_t chosen = std::min<uint64_t>(config.moe.top_k, routable);
  return Share(SizeOf(moe.router), routable, all) + Share(routable_bytes, chosen, routable) +
         SizeOf(moe.shared) + SizeOf(moe.shared_gate) + SizeOf(moe.router_bias) +
         SizeOf(moe.expert_bias) + Share(bias_bytes, chosen, all);
}

}  // namespace

uint64_t WeightBytesPerToken(const Weights& weights, const ModelConfig& config,
                             const TaskMask& mask) {
  static const LayerMask kWhole;
  uint64_t bytes = SizeOf(weights.final_norm) + SizeOf(weights.lm_head) +
                   SizeOf(weights.embed) / weights.embed.rows;
  for (uint32_t visit = 0; visit < config.num_visits(); ++visit) {
    const LayerMask& of_visit = mask.visits.empty() ? kWhole : mask.visits[visit];
    if (!of_visit.live) continue;
    const LayerWeights& layer = weights.layers[visit % config.num_layers];
    for (const auto* norm : {&layer.attention_norm, &layer.attention_post_norm, &layer.ffn_norm,
                             &layer.ffn_post_norm}) {
      bytes += SizeOf(*norm);
    }
    const LayerConfig& shape = config.layers[visit % config.num_layers];
    bytes += MixerBytes(layer, shape, of_visit);
    bytes += layer.is_moe ? MoeBytes(layer.moe, config, of_visit) : FfnBytes(layer.ffn, of_visit);
  }
  return bytes;
}

}  // namespace moewe::model
