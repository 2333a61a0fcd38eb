#include "model/expert_usage.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>

#include "experts/expert_frequencies.h"

namespace moewe::model {

UsageFile::UsageFile(std::string path, const formats::Checkpoint& checkpoint,
                     const Weights& weights, const StoredExperts& stored)
    : path_(std::move(path)) {
  std::vector<uint32_t> per_layer;
  uint32_t first = 0;
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    for (const uint32_t expert : stored.experts[l]) streamed_.push_back(first + expert);
    per_layer.push_back(static_cast<uint32_t>(weights.layers[l].moe.experts.size()));
    first += per_layer.back();
  }
  past_.assign(first, 0);
  std::vector<experts::ModelFile> files;
  for (const std::string& file : checkpoint.files()) {
    std::error_code unknown;
    const std::filesystem::path at(file);
    files.push_back({at.filename().string(), std::filesystem::file_size(at, unknown)});
  }
  key_ = experts::FrequencyKey(files, per_layer);
}

std::vector<uint64_t> UsageFile::Read() {
  past_ = experts::ReadFrequencies(path_, key_, past_.size());
  std::vector<uint64_t> counts;
  counts.reserve(streamed_.size());
  for (const uint32_t id : streamed_) counts.push_back(past_[id]);
  return counts;
}

void UsageFile::Save(std::span<const uint64_t> used) const {
  std::vector<uint64_t> now(past_.size(), 0);
  for (size_t i = 0; i < streamed_.size(); ++i) now[streamed_[i]] = used[i];
  experts::SaveFrequencies(path_, key_, experts::MergeFrequencies(past_, now));
}

double ExpectedHitRate(std::span<const uint64_t> counts, uint64_t slots) {
  if (slots >= counts.size()) return 1.0;
  // One use more for each: what was not used so far is not impossible.
  std::vector<double> rates(counts.size());
  std::transform(counts.begin(), counts.end(), rates.begin(),
                 [](uint64_t count) { return static_cast<double>(count) + 1.0; });
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  for (double& rate : rates) rate /= sum;
  const auto there = [&](double time, bool weighted) {
    double expected = 0.0;
    for (const double rate : rates) expected += (weighted ? rate : 1.0) * -std::expm1(-rate * time);
    return expected;
  };
  double low = 0.0;
  double high = 1.0;
  const auto wanted = static_cast<double>(slots);
  while (there(high, false) < wanted) high *= 2.0;
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2.0;
    (there(middle, false) < wanted ? low : high) = middle;
  }
  return there(high, true);
}

}  // namespace moewe::model
