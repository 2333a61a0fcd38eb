// How often each expert of a model was used, kept beside the model for the next start.
//
// A file "<model>.freq": the magic "MOEWFREQ", version (u32), number of experts (u32), key of the
// model (u64), a count an expert in the order of ExpertIds (u64 each), hash64 of all that (u64);
// little-endian. It is a hint: whoever can't read it goes on without.
#ifndef MOEWE_EXPERTS_EXPERT_FREQUENCIES_H_
#define MOEWE_EXPERTS_EXPERT_FREQUENCIES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moewe::experts {

// Beside the model, which may be a folder.
std::string FrequencyPath(const std::string& model);

// What tells one model from another.
struct ModelFile {
  std::string name;  // without folders: a model may be moved
  uint64_t bytes = 0;
};
uint64_t FrequencyKey(std::span<const ModelFile> files,
                      std::span<const uint32_t> experts_per_layer);

// Throws Error{kNotFound} if there is none, Error{kInvalidMagic, kUnsupportedVersion, kBounds,
// kHashMismatch} for one that is damaged, {kParse} for one of another model, {kIo}. What is
// no regular file is kIo here and below: links are not followed, pipes not waited for.
std::vector<uint64_t> ReadFrequencies(const std::string& path, uint64_t key, size_t experts);

// Replaces the file as a whole. False if its folder may not be written. Throws Error{kNotFound} for
// a missing folder, {kNoSpace, kIo}.
bool SaveFrequencies(const std::string& path, uint64_t key, std::span<const uint64_t> counts);

// The sum, with a past that is halved until there is room for the present: together they count at
// most kMostUses times the number of experts, so that what was frequent once does not stay so for
// ever. Both have the same number of counts.
inline constexpr uint64_t kMostUses = 256;
std::vector<uint64_t> MergeFrequencies(std::span<const uint64_t> past,
                                       std::span<const uint64_t> present);

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_EXPERT_FREQUENCIES_H_
