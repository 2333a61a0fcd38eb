// How often experts were used before, as it is kept beside a model, and what hit rate a cache has
// with it.
#ifndef MOEWE_MODEL_EXPERT_USAGE_H_
#define MOEWE_MODEL_EXPERT_USAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "model/stored_experts.h"
#include "model/weights.h"

namespace moewe::model {

// The file of how often each routed expert of a model was used (experts/expert_frequencies.h). It
// counts all of them, streamed or not: what a run holds in memory, blended skills for example,
// keeps its count for the next run that streams it. One thread at a time.
class UsageFile {
 public:
  // Looks at the names and sizes of the checkpoint's files, whose experts `stored` are streamed of
  // those of `weights`.
  UsageFile(std::string path, const formats::Checkpoint& checkpoint, const Weights& weights,
            const StoredExperts& stored);

  // Of the streamed experts, in the order of the store's ids. Throws as experts::ReadFrequencies.
  std::vector<uint64_t> Read();

  // Adds uses of the streamed experts to what was read before, and replaces the file. Throws as
  // experts::SaveFrequencies.
  void Save(std::span<const uint64_t> used) const;

 private:
  const std::string path_;
  uint64_t key_ = 0;
  std::vector<uint64_t> past_;      // of all experts
  std::vector<uint32_t> streamed_;  // which of them are, ascending
};

// The share of uses that find their expert in a cache of so many slots that evicts the least
// recently used one, if uses are independent and as frequent as `counts` (Che, Tung and Wang 2002,
// "Hierarchical Web caching systems": an expert is there if it was used within a time that makes
// the expected number of those exactly `slots`). slots / experts if all counts are equal or zero.
double ExpectedHitRate(std::span<const uint64_t> counts, uint64_t slots);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_EXPERT_USAGE_H_
