#include "convert/vbit_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/made_bytes.h"
#include "formats/tensor_values.h"
#include "model/name_parts.h"
#include "quant/vbit.h"

namespace moewe::convert {
namespace {

constexpr double kLargestShift = 2.5;  // bits that an expert may get above or below the family
constexpr double kLargestDelta = 3.0;
constexpr int kBisections = 40;

double Mean(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

double Mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

void SubtractMean(std::vector<double>* values) {
  const double mean = Mean(*values);
  for (double& value : *values) value -= mean;
}

}  // namespace

std::vector<std::vector<uint8_t>> JointVbitWidths(const std::vector<std::vector<float>>& amplitudes,
                                                  std::span<const uint64_t> counts,
                                                  float mean_bits) {
  const size_t experts = amplitudes.size();
  std::vector<double> averages;
  double rows = 0.0;
  double sum = 0.0;
  for (const std::vector<float>& expert : amplitudes) {
    averages.push_back(Mean(expert));
    rows += static_cast<double>(expert.size());
    sum += averages.back() * static_cast<double>(expert.size());
  }
  std::vector<double> shifts(experts);
  for (size_t e = 0; e < experts; ++e) shifts[e] = averages[e] - sum / rows;
  if (!counts.empty()) {
    std::vector<double> frequencies(experts);
    for (size_t e = 0; e < experts; ++e) {
      frequencies[e] = std::log2(static_cast<double>(counts[e]) + 1.0);
    }
    SubtractMean(&frequencies);
    for (size_t e = 0; e < experts; ++e) shifts[e] += frequencies[e];
  }
  for (double& shift : shifts) shift = std::clamp(shift, -kLargestShift, kLargestShift);
  SubtractMean(&shifts);

  std::vector<std::vector<uint8_t>> widths(experts);
  for (size_t e = 0; e < experts; ++e) widths[e].resize(amplitudes[e].size());
  // Rounding to the widths that exist moves the mean; a common delta moves it back.
  const auto assign = [&](double delta) {
    double total = 0.0;
    for (size_t e = 0; e < experts; ++e) {
      const double base = static_cast<double>(mean_bits) + shifts[e] + delta - averages[e];
      for (size_t row = 0; row < amplitudes[e].size(); ++row) {
        const double raw = base + static_cast<double>(amplitudes[e][row]);
        widths[e][row] = quant::NearestVbitWidth(static_cast<float>(raw));
        total += widths[e][row];
      }
    }
    return total / rows;
  };
  double low = -kLargestDelta;
  double high = kLargestDelta;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2.0;
    (assign(middle) < static_cast<double>(mean_bits) ? low : high) = middle;
  }
  assign((low + high) / 2.0);
  return widths;
}

std::optional<ExpertTensor> ParseExpertTensor(const std::string& name) {
  std::string_view rest = name;
  const auto layer = model::EatNumbered(&rest, "model.layers.");
  if (!layer || !model::Eat(&rest, ".mlp.experts.")) return std::nullopt;
  const std::string before = name.substr(0, name.size() - rest.size());
  const auto expert = model::EatNumber(&rest);
  if (!expert || !rest.starts_with('.')) return std::nullopt;
  return ExpertTensor{before + "*" + std::string(rest), *layer, *expert};
}

VbitBudget::VbitBudget(const ConvertPlan& plan, ExpertCounts counts, float mean_bits,
                       ThreadPool& pool)
    : plan_(plan), counts_(std::move(counts)), mean_bits_(mean_bits), pool_(pool) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& planned = plan.tensors[i];
    const bool is_vbit = planned.dtype == DType::kVbit || planned.dtype == DType::kVbitRo;
    if (!is_vbit || planned.copied() || planned.source.matrix().rows == 0) continue;
    const std::optional<ExpertTensor> parsed = ParseExpertTensor(planned.source.name);
    if (!parsed) continue;
    const auto [found, is_new] = by_name.emplace(parsed->family, families_.size());
    if (is_new) families_.push_back({.layer = parsed->layer, .allocated = false, .members = {}});
    Family& family = families_[found->second];
    places_[i] = {found->second, family.members.size()};
    family.members.push_back({i, parsed->expert, {}});
    const auto layer_counts = counts_.find(parsed->layer);
    if (!counts_.empty() &&
        (layer_counts == counts_.end() || layer_counts->second.size() <= parsed->expert)) {
      throw Error(ErrorCode::kUsage, "the routing counts have no entry for this expert",
                  {"", planned.source.name, {}});
    }
  }
}

std::span<const uint8_t> VbitBudget::WidthsOf(size_t index) {
  const auto place = places_.find(index);
  if (place == places_.end()) return {};
  Family& family = families_[place->second.first];
  if (!family.allocated) Allocate(&family);
  return family.members[place->second.second].widths;
}

void VbitBudget::Allocate(Family* family) {
  std::vector<std::vector<float>> amplitudes;
  std::vector<uint64_t> counts;
  for (const Member& member : family->members) {
    amplitudes.push_back(Amplitudes(plan_.tensors[member.index].source));
    if (!counts_.empty()) counts.push_back(counts_[family->layer][member.expert]);
  }
  std::vector<std::vector<uint8_t>> widths = JointVbitWidths(amplitudes, counts, mean_bits_);
  for (size_t i = 0; i < widths.size(); ++i) family->members[i].widths = std::move(widths[i]);
  family->allocated = true;
}

std::vector<float> VbitBudget::Amplitudes(const formats::TensorView& tensor) {
  const formats::HeldBytes held(tensor);
  const formats::TensorValues stored(tensor);
  const quant::MatrixShape shape = tensor.matrix();
  stored.Validate({"", tensor.name, {}});
  std::vector<float> amplitudes(shape.rows);
  constexpr uint64_t kBlock = quant::kEncodeRowAlign;
  std::vector<std::vector<float>> rows(
      static_cast<size_t>(pool_.num_threads()),
      std::vector<float>(std::min(kBlock, shape.rows) * shape.cols));
  pool_.Run((shape.rows + kBlock - 1) / kBlock, [&](size_t block, int worker) {
    float* values = rows[static_cast<size_t>(worker)].data();
    const uint64_t begin = block * kBlock;
    const uint64_t end = std::min(begin + kBlock, shape.rows);
    stored.DecodeRows(begin, end, values);
    for (uint64_t row = begin; row < end; ++row, values += shape.cols) {
      amplitudes[row] = quant::VbitAmplitude(values, shape.cols);
    }
  });
  return amplitudes;
}

}  // namespace moewe::convert
