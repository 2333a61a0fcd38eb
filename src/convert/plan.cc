#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "formats/cmf/skills.h"
#include "formats/tensor_values.h"
#include "model/canonical.h"
#include "model/name_parts.h"
#include "model/weights.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using formats::TensorView;
using formats::cmf::kSkillPrefix;

// part of the file, layer, role of an expert's matrix (0 = none), expert.
std::tuple<int, uint32_t, int, uint32_t> OrderKey(std::string_view name) {
  if (name.starts_with("model.embed_tokens")) return {0, 0, 0, 0};
  if (name.starts_with("model.norm.")) return {2, 0, 0, 0};
  if (name.starts_with("lm_head")) return {3, 0, 0, 0};
  const auto layer = model::EatNumbered(&name, "model.layers.");
  if (!layer) return {4, 0, 0, 0};
  const auto expert = model::EatNumbered(&name, ".mlp.experts.");
  if (!expert) return {1, *layer, 0, 0};
  if (name.ends_with(".bias")) return {1, *layer, 0, 0};  // an expert's matrices lie together
  const int role = name.starts_with(".gate_proj") ? 1 : name.starts_with(".up_proj") ? 2 : 3;
  return {1, *layer, role, *expert};
}

// Rules and what became of each: a misspelled one must not pass in silence.
class Rules {
 public:
  explicit Rules(const std::vector<TensorRule>& rules) : rules_(rules), matches_(rules.size()) {}

  // The dtype of the first rule that matches, of which the later ones take note too. A rule for the
  // backbone says nothing about skills: theirs begin with "skill.", as their tensors' names do.
  std::optional<DType> Match(const TensorView& tensor) {
    std::optional<DType> dtype;
    for (size_t i = 0; i < rules_.size(); ++i) {
      const std::string& glob = rules_[i].glob;
      if (tensor.name.starts_with(kSkillPrefix) != glob.starts_with(kSkillPrefix)) continue;
      if (!RuleMatches(glob, tensor.name)) continue;
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

// A part of a tensor that keeps its dtype, or the nearest that can hold it: exactly where it is
// small (a router), as an encoder would choose where it is a matrix of weights.
DType DTypeOfPart(const TensorView& tensor, const CutTensor& part) {
  if (CanGather(tensor, part.selection)) return tensor.dtype;
  if (part.exact) return DType::kF32;
  TensorView kept = tensor;
  kept.shape = part.selection.Of(tensor.shape);
  return HeldDType(kept, tensor.dtype);
}

// Sources whose dtypes stay what they are unless something else is asked for.
bool KeepsDTypes(const formats::Checkpoint& source) {
  return source.kind() == formats::CheckpointKind::kCmf ||
         source.kind() == formats::CheckpointKind::kSmoe;
}

class Planner {
 public:
  Planner(const formats::Checkpoint& source, std::optional<DType> quant,
          const std::vector<TensorRule>& rules, const Cut& cut)
      : source_(source),
        quant_(quant),
        keeps_(KeepsDTypes(source) && !quant),
        rules_(rules),
        cut_(cut) {}

  ConvertPlan Plan(SourceTensors listed) {
    plan_.config = std::move(listed.config);
    plan_.warnings = std::move(listed.warnings);
    for (TensorView& tensor : listed.tensors) Add(std::move(tensor));
    rules_.CheckAllUsed();
    plan_.fallbacks = wrong_columns_.count();
    Note("columns no multiple of 32, written as q8_2f", wrong_columns_);
    Note("no matrix or under 32 elements, written as f16", small_);
    Note("f32 alone holds the experts' values exactly, --quant makes a smaller file", widened_);
    return std::move(plan_);
  }

 private:
  void Note(const char* what, const Listed& listed) {
    if (listed.count() > 0) plan_.notes.push_back(fmt::format("{}: {}", what, listed.Text()));
  }

  void Add(TensorView tensor) {
    CutTensor part = cut_.Apply(tensor, source_);
    const std::optional<DType> rule = rules_.Match(tensor);
    if (part.dropped) return;
    const DType dtype = Choose(tensor, part, rule);
    PlannedTensor planned;
    planned.shape = part.selection.Of(tensor.shape);
    planned.name = std::move(part.name);
    planned.selection = std::move(part.selection);
    planned.dtype = dtype;
    const quant::MatrixShape kept = planned.selection.Of(tensor.matrix());
    plan_.elements += kept.rows * kept.cols;
    plan_.source_bytes += tensor.bytes.size();
    planned.source = std::move(tensor);
    if (!planned.copied() && !formats::TensorValues(planned.source).known()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} is stored as {}, which moewe cannot read yet",
                              planned.source.name, DTypeName(planned.source.dtype)),
                  {source_.files()[planned.source.file_index], planned.source.name,
                   planned.source.file_offset});
    }
    planned.nbytes = planned.copied() ? planned.source.bytes.size()
                                      : quant::FindCodec(dtype)->encoded_size(kept);
    plan_.tensors.push_back(std::move(planned));
  }

  DType Choose(const TensorView& tensor, const CutTensor& part, std::optional<DType> rule) {
    TensorView kept = tensor;  // as far as its shape decides
    kept.shape = part.selection.Of(tensor.shape);
    const auto held = [&](DType wanted) {
      const DType dtype = HeldDType(kept, wanted);
      if (dtype != wanted && dtype == DType::kF16) small_.Add(part.name);
      if (dtype != wanted && dtype == DType::kQ82f) wrong_columns_.Add(part.name);
      return dtype;
    };
    if (rule) return held(*rule);
    if (keeps_ && !IsCmfDType(tensor.dtype)) {
      widened_.Add(part.name);
      return DType::kF32;  // the only one that has every value of a vault's experts
    }
    if (keeps_ || tensor.name.starts_with(kSkillPrefix)) {
      if (part.selection.all()) return tensor.dtype;
      const DType dtype = DTypeOfPart(tensor, part);
      if (dtype != tensor.dtype && dtype == DType::kQ82f) wrong_columns_.Add(part.name);
      return dtype;
    }
    const DType asked = quant_.value_or(DType::kQ8Row);
    DType dtype = ChooseDType(tensor, asked);
    if (!part.selection.all()) dtype = HeldDType(kept, dtype);
    if (dtype == DType::kQ82f && asked != DType::kQ82f) wrong_columns_.Add(part.name);
    return dtype;
  }

  const formats::Checkpoint& source_;
  std::optional<DType> quant_;
  bool keeps_;  // the source's dtypes
  Rules rules_;
  const Cut& cut_;
  Listed wrong_columns_;
  Listed small_;
  Listed widened_;
  ConvertPlan plan_;
};

}  // namespace

SourceTensors ListSource(const formats::Checkpoint& source) {
  SourceTensors listed;
  if (source.kind() == formats::CheckpointKind::kCmf) {
    listed.tensors = source.tensors();
    return listed;
  }
  listed.config = model::ReadConfig(source);
  listed.warnings = listed.config->warnings.list;
  listed.tensors = model::CanonicalTensors(source, *listed.config, &listed.warnings);
  // What could not run would only be found out after the work.
  // Float values can't be wrong, and those of a whole model are not made at once.
  const bool floats = source.kind() == formats::CheckpointKind::kHuggingFace;
  model::BindWeights(source, *listed.config, model::TensorHashes::kIgnore,
                     floats ? model::BytesToRead::kNone : model::BytesToRead::kAll);
  std::stable_sort(
      listed.tensors.begin(), listed.tensors.end(),
      [](const TensorView& a, const TensorView& b) { return OrderKey(a.name) < OrderKey(b.name); });
  return listed;
}

ConvertPlan PlanConversion(const formats::Checkpoint& source, SourceTensors listed,
                           std::optional<DType> quant, const std::vector<TensorRule>& rules,
                           const Cut& cut) {
  return Planner(source, quant, rules, cut).Plan(std::move(listed));
}

ConvertPlan PlanConversion(const formats::Checkpoint& source, std::optional<DType> quant,
                           const std::vector<TensorRule>& rules) {
  return PlanConversion(source, ListSource(source), quant, rules, {});
}

}  // namespace moewe::convert
