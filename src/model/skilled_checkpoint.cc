#include "model/skilled_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <string_view>

#include "base/size.h"
#include "formats/cmf/replacement.h"
#include "model/weights.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::model {
namespace {

using formats::TensorView;
using formats::cmf::kSkillPrefix;

Where WhereInFile(const formats::Checkpoint& checkpoint, const TensorView& tensor) {
  return {checkpoint.files()[tensor.file_index], tensor.name, tensor.file_offset};
}

std::string_view Replaced(const TensorView& tensor, const std::string& id) {
  return std::string_view(tensor.name).substr(kSkillPrefix.size() + id.size() + 1);
}

// By the backbone's tensor: what each chosen skill puts in its place, null where it has nothing.
using Replacements = std::map<const TensorView*, std::vector<const TensorView*>, std::less<>>;

Replacements FindReplacements(const formats::Checkpoint& checkpoint, const SkillChoice& choice) {
  Replacements replacements;
  for (size_t i = 0; i < choice.size(); ++i) {
    for (const TensorView* tensor : TensorsOfSkill(checkpoint, choice[i].id)) {
      const std::string_view name = Replaced(*tensor, choice[i].id);
      const TensorView* backbone = name.starts_with(kSkillPrefix) ? nullptr : checkpoint.Find(name);
      formats::cmf::CheckReplacement(tensor->name, tensor->shape, name,
                                     backbone == nullptr ? nullptr : &backbone->shape,
                                     WhereInFile(checkpoint, *tensor));
      auto& sources = replacements[backbone];
      sources.resize(choice.size(), nullptr);
      sources[i] = tensor;
    }
  }
  return replacements;
}

// Of the f32 values; the element count of a checkpoint's tensor fits 64 bits, their bytes may not.
uint64_t BlendBytes(const TensorView& tensor) {
  const quant::MatrixShape shape = tensor.matrix();
  return CheckedMul(shape.rows * shape.cols, sizeof(float))
      .value_or(std::numeric_limits<uint64_t>::max());
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  return CheckedAdd(a, b).value_or(std::numeric_limits<uint64_t>::max());
}

// Rows that a task decodes.
constexpr uint64_t kRows = 64;

}  // namespace

void SkilledCheckpoint::Free::operator()(float* values) const { std::free(values); }

// Computes the weighted sums of one choice.
class SkilledCheckpoint::Blender {
 public:
  Blender(const formats::Checkpoint& checkpoint, const SkillChoice& choice,
          const SkillOptions& options, ThreadPool* pool)
      : checkpoint_(checkpoint),
        choice_(choice),
        options_(options),
        pool_(*pool),
        scratch_(static_cast<size_t>(pool->num_threads())) {}

  Values Blend(const TensorView& backbone, const std::vector<const TensorView*>& sources) {
    // Zeroed pages that nobody touches cost nothing: a plan needs no values.
    const uint64_t bytes = BlendBytes(backbone);
    Values values(static_cast<float*>(std::calloc(static_cast<size_t>(bytes), 1)));
    if (values == nullptr && bytes != 0) throw std::bad_alloc();
    if (!options_.compute_blend) return values;
    for (size_t i = 0; i < sources.size(); ++i) {
      const TensorView& source = sources[i] == nullptr ? backbone : *sources[i];
      Check(source);
      Accumulate(source, static_cast<float>(choice_[i].weight), values.get());
    }
    return values;
  }

 private:
  void Check(const TensorView& source) const {
    const quant::Codec* codec = quant::FindCodec(source.dtype);
    if (codec == nullptr || source.dtype == DType::kU8) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} is stored as {}, which is not a dtype of weights", source.name,
                              DTypeName(source.dtype)),
                  WhereInFile(checkpoint_, source));
    }
    codec->validate(source.bytes, source.matrix(), WhereInFile(checkpoint_, source));
    if (options_.check_hashes) VerifyTensor(checkpoint_, source);
  }

  // out += weight * source
  void Accumulate(const TensorView& source, float weight, float* out) {
    const quant::Codec* codec = quant::FindCodec(source.dtype);
    const quant::MatrixShape shape = source.matrix();
    const uint64_t rows = std::min(kRows, shape.rows);
    for (std::vector<float>& scratch : scratch_) {
      scratch.resize(std::max<size_t>(scratch.size(), static_cast<size_t>(rows * shape.cols)));
    }
    pool_.Run(static_cast<size_t>((shape.rows + kRows - 1) / kRows), [&](size_t task, int worker) {
      const uint64_t begin = task * kRows;
      const uint64_t end = std::min(begin + kRows, shape.rows);
      float* decoded = scratch_[static_cast<size_t>(worker)].data();
      codec->decode_rows(source.bytes, shape, begin, end, decoded);
      float* sums = out + begin * shape.cols;
      for (uint64_t k = 0; k < (end - begin) * shape.cols; ++k) sums[k] += weight * decoded[k];
    });
  }

  const formats::Checkpoint& checkpoint_;
  const SkillChoice& choice_;
  const SkillOptions& options_;
  ThreadPool& pool_;
  std::vector<std::vector<float>> scratch_;  // one a worker
};

SkilledCheckpoint::SkilledCheckpoint(std::shared_ptr<const formats::Checkpoint> base_checkpoint,
                                     const SkillChoice& choice, const SkillOptions& options,
                                     ThreadPool* pool)
    : CheckpointView(std::move(base_checkpoint)) {
  const Replacements replacements = FindReplacements(base(), choice);
  const bool blend = choice.size() > 1;
  if (blend) {
    for (const auto& [backbone, sources] : replacements) {
      blended_bytes_ = SaturatingAdd(blended_bytes_, BlendBytes(*backbone));
    }
    if (blended_bytes_ > options.blend_limit) {
      throw Error(
          ErrorCode::kOutOfBudget,
          fmt::format("blending {} takes {} in f32, but the budget is {}", SkillChoiceText(choice),
                      FormatSize(blended_bytes_), FormatSize(options.blend_limit)),
          {files().front(), "--memory"});
    }
  }
  Blender blender(base(), choice, options, pool);
  index_.Reserve(base().tensors().size());
  for (const TensorView& tensor : base().tensors()) {
    if (tensor.name.starts_with(kSkillPrefix)) continue;
    TensorView view = tensor;
    if (const auto found = replacements.find(&tensor); found != replacements.end()) {
      if (blend) {
        blended_.push_back(blender.Blend(tensor, found->second));
        view.dtype = DType::kF32;
        view.bytes = {reinterpret_cast<const uint8_t*>(blended_.back().get()),
                      static_cast<size_t>(BlendBytes(tensor))};
        view.file_offset = formats::kNotInFile;
        view.hash = 0;
      } else {
        const TensorView& source = *found->second.front();
        if (options.check_hashes && options.check_replaced) VerifyTensor(base(), source);
        view = source;
        view.name = tensor.name;
      }
    }
    index_.Add(std::move(view));
  }
}

std::vector<const TensorView*> TensorsOfSkill(const formats::Checkpoint& checkpoint,
                                              const std::string& id) {
  const auto skills = SkillsOf(checkpoint);
  const auto is_backbone = [&](std::string_view name) {
    return !name.starts_with(kSkillPrefix) && checkpoint.Find(name) != nullptr;
  };
  std::vector<const TensorView*> tensors;
  for (const TensorView& tensor : checkpoint.tensors()) {
    const auto owner = formats::cmf::SkillOfTensor(skills, tensor.name, is_backbone);
    if (owner && owner->skill->id == id) tensors.push_back(&tensor);
  }
  return tensors;
}

uint64_t ExtraBytes(const formats::Checkpoint& checkpoint, const SkillChoice& choice) {
  uint64_t more = 0;
  uint64_t less = 0;
  for (const auto& [backbone, sources] : FindReplacements(checkpoint, choice)) {
    more = SaturatingAdd(
        more, choice.size() > 1 ? BlendBytes(*backbone) : uint64_t{sources.front()->bytes.size()});
    less += backbone->bytes.size();
  }
  return more > less ? more - less : 0;
}

uint64_t MostExtraBytes(const formats::Checkpoint& checkpoint, const std::vector<std::string>& ids,
                        bool pairs) {
  uint64_t most = 0;
  if (!pairs || ids.size() < 2) {
    for (const std::string& id : ids) most = std::max(most, ExtraBytes(checkpoint, {{id, 1.0}}));
    return most;
  }
  // What each one replaces is looked up once; a pair replaces what either does.
  std::vector<std::vector<const TensorView*>> replaced;
  for (const std::string& id : ids) {
    std::vector<const TensorView*>& tensors = replaced.emplace_back();
    for (const auto& [backbone, sources] : FindReplacements(checkpoint, {{id, 1.0}})) {
      tensors.push_back(backbone);
    }
  }
  std::vector<const TensorView*> either;
  for (size_t i = 0; i < replaced.size(); ++i) {
    for (size_t j = i + 1; j < replaced.size(); ++j) {
      either.clear();
      std::set_union(replaced[i].begin(), replaced[i].end(), replaced[j].begin(), replaced[j].end(),
                     std::back_inserter(either), std::less<>());
      uint64_t more = 0;
      uint64_t less = 0;
      for (const TensorView* backbone : either) {
        more = SaturatingAdd(more, BlendBytes(*backbone));
        less += backbone->bytes.size();
      }
      if (more > less) most = std::max(most, more - less);
    }
  }
  return most;
}

uint64_t BlendedBytes(const formats::Checkpoint& checkpoint) {
  const auto* skilled = dynamic_cast<const SkilledCheckpoint*>(&checkpoint);
  return skilled == nullptr ? 0 : skilled->blended_bytes();
}

}  // namespace moewe::model
