#include "model/expert_usage.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>

#include "experts/expert_frequencies.h"

namespace moewe::model {

uint64_t UsageKey(const formats::Checkpoint& checkpoint,
                  std::span<const uint32_t> experts_per_layer) {
  std::vector<experts::ModelFile> files;
  for (const std::string& file : checkpoint.files()) {
    std::error_code unknown;
    const std::filesystem::path path(file);
    files.push_back({path.filename().string(), std::filesystem::file_size(path, unknown)});
  }
  return experts::FrequencyKey(files, experts_per_layer);
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
