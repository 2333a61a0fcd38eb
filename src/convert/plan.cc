#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "model/canonical.h"
#include "model/name_parts.h"
#include "model/weights.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using formats::TensorView;

// part of the file, layer, role of an expert's matrix (0 = none), expert.
std::tuple<int, uint32_t, int, uint32_t> OrderKey(std::string_view name) {
  if (name.starts_with("model.embed_tokens")) return {0, 0, 0, 0};
  if (name.starts_with("model.norm.")) return {2, 0, 0, 0};
  if (name.starts_with("lm_head")) return {3, 0, 0, 0};
  const auto layer = model::EatNumbered(&name, "model.layers.");
  if (!layer) return {4, 0, 0, 0};
  const auto expert = model::EatNumbered(&name, ".mlp.experts.");
  if (!expert) return {1, *layer, 0, 0};
  const int role = name.starts_with(".gate_proj") ? 1 : name.starts_with(".up_proj") ? 2 : 3;
  return {1, *layer, role, *expert};
}

// Rules and what became of each: a misspelled one must not pass in silence.
class Rules {
 public:
  explicit Rules(const std::vector<TensorRule>& rules) : rules_(rules), matches_(rules.size()) {}

  // The dtype of the first rule that matches, of which the later ones take note too.
  std::optional<DType> Match(const TensorView& tensor) {
    std::optional<DType> dtype;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (!RuleMatches(rules_[i].glob, tensor.name)) continue;
      if (tensor.dtype == DType::kU8) {
        matches_[i].opaque = tensor.name;
        continue;
      }
      ++matches_[i].count;
      if (!dtype) dtype = rules_[i].dtype;
    }
    return dtype;
  }

  void CheckAllUsed() const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (matches_[i].count > 0) continue;
      if (!matches_[i].opaque.empty()) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("--tensor '{}': {} holds plain bytes, which have no other dtype",
                                rules_[i].glob, matches_[i].opaque));
      }
      throw Error(ErrorCode::kUnknownName,
                  fmt::format("--tensor '{}' matches no tensor of the source", rules_[i].glob));
    }
  }

 private:
  struct Matches {
    uint64_t count = 0;
    std::string opaque;  // one that holds bytes and no numbers
  };
  const std::vector<TensorRule>& rules_;
  std::vector<Matches> matches_;
};

// "gate_proj.weight and 95 more", for a line about many.
class Listed {
 public:
  void Add(const std::string& name) {
    if (count_++ == 0) first_ = name;
  }
  uint64_t count() const { return count_; }
  std::string Text() const {
    return count_ <= 1 ? first_ : fmt::format("{} and {} more", first_, count_ - 1);
  }

 private:
  std::string first_;
  uint64_t count_ = 0;
};

std::vector<TensorView> SourceTensors(const formats::Checkpoint& source, ConvertPlan* plan) {
  if (source.kind() == formats::CheckpointKind::kCmf) return source.tensors();
  plan->config = model::ReadConfig(source);
  plan->warnings = plan->config->warnings.list;
  std::vector<TensorView> tensors = model::CanonicalTensors(source, *plan->config, &plan->warnings);
  // What could not run would only be found out after the work.
  model::BindWeights(source, *plan->config, model::TensorHashes::kIgnore);
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    return OrderKey(a.name) < OrderKey(b.name);
  });
  return tensors;
}

}  // namespace

ConvertPlan PlanConversion(const formats::Checkpoint& source, std::optional<DType> quant,
                           const std::vector<TensorRule>& rules) {
  ConvertPlan plan;
  std::vector<TensorView> tensors = SourceTensors(source, &plan);
  const bool keeps = source.kind() == formats::CheckpointKind::kCmf && !quant;
  Rules matcher(rules);
  Listed wrong_columns;
  Listed small;
  for (TensorView& tensor : tensors) {
    DType dtype = tensor.dtype;
    if (!tensor.name.starts_with("skill.")) {
      if (const std::optional<DType> rule = matcher.Match(tensor)) {
        dtype = HeldDType(tensor, *rule);
        if (dtype != *rule && dtype == DType::kF16) small.Add(tensor.name);
        if (dtype != *rule && dtype == DType::kQ82f) wrong_columns.Add(tensor.name);
      } else if (!keeps) {
        const DType asked = quant.value_or(DType::kQ8Row);
        dtype = ChooseDType(tensor, asked);
        if (dtype == DType::kQ82f && asked != DType::kQ82f) wrong_columns.Add(tensor.name);
      }
    }
    plan.elements += tensor.matrix().rows * tensor.matrix().cols;
    plan.source_bytes += tensor.bytes.size();
    const bool copied = dtype == tensor.dtype;
    if (!copied && quant::FindCodec(tensor.dtype) == nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} is stored as {}, which moewe cannot read yet", tensor.name,
                              DTypeName(tensor.dtype)),
                  {source.files()[tensor.file_index], tensor.name, tensor.file_offset});
    }
    const std::optional<uint64_t> nbytes =
        copied ? tensor.bytes.size() : quant::FindCodec(dtype)->encoded_size(tensor.matrix());
    plan.tensors.push_back({std::move(tensor), dtype, nbytes});
  }
  matcher.CheckAllUsed();
  plan.fallbacks = wrong_columns.count();
  if (wrong_columns.count() > 0) {
    plan.notes.push_back(
        fmt::format("columns no multiple of 32, written as q8_2f: {}", wrong_columns.Text()));
  }
  if (small.count() > 0) {
    plan.notes.push_back(
        fmt::format("no matrix or under 32 elements, written as f16: {}", small.Text()));
  }
  return plan;
}

}  // namespace moewe::convert
