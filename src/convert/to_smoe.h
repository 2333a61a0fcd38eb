// Any mixture-of-experts checkpoint to a .smoe vault with its companions, expert by expert.
#ifndef MOEWE_CONVERT_TO_SMOE_H_
#define MOEWE_CONVERT_TO_SMOE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convert/pipeline.h"
#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct SmoeOptions {
  uint32_t bits = 4;  // 2 or 4
  // The Scout without moewe's metadata, byte for byte what the format's own writer makes.
  bool plain_scout = false;
  bool resume = false;
  bool keep_partial = true;  // what is written when it stops early stays for a resume
  // Called after each expert and each tensor of the Scout; may throw to stop.
  std::function<void(const ConvertProgress&)> progress;
  std::function<void(const std::string&)> warning;
  std::function<void(const std::string&)> note;
};

struct SmoeResult {
  std::vector<std::string> files;  // the vault, the Scout, and what else was written
  uint64_t experts = 0;
  uint64_t elements = 0;  // of the experts
  uint64_t bytes = 0;     // of the experts, without padding
  std::vector<std::string> warnings;
};

// Writes `dst` and, beside it, <stem>.scout.safetensors, <stem>.tokenizer.json and <stem>.chat.json
// (those two if the source has them; older ones go otherwise). All appear when all is complete, or
// none: between their renames there is no vault (platform/replaced_files.h). Until then
// "<dst>.partial" holds the experts that are done. Masks and skills of a CMF source are left out,
// with a warning. Memory: one expert and the tables.
//
// Throws Error{kUnsupported} for a model that vaults cannot hold: without experts, with a gate
// other than SiLU, more than 16 experts a token, heads beyond 256 channels; with plain_scout also
// one whose math the arch block cannot express, by name. Error{kUsage} if `dst` or a companion is a
// file of the source; what reading, binding and writing throw.
SmoeResult ConvertToSmoe(const formats::Checkpoint& source, const std::string& dst,
                         const SmoeOptions& options, ThreadPool& pool);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_TO_SMOE_H_
