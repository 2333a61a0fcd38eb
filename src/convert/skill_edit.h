// Adding skills to a CMF file and removing them, in place (CMF v2 section 9).
#ifndef MOEWE_CONVERT_SKILL_EDIT_H_
#define MOEWE_CONVERT_SKILL_EDIT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "convert/skill_subspace.h"
#include "formats/checkpoint.h"
#include "formats/cmf/append.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct SkillAddOptions {
  std::string id;
  std::string name;             // for people
  std::string input_mask_task;  // a mask of the file that belongs to the skill; empty = none
  // Tensors that changed by more than this become the skill's (RelativeChange).
  double min_delta = 0.01;
  std::optional<DType> dtype;                   // nothing: that of the tensor which is replaced
  std::optional<std::vector<uint32_t>> layers;  // nothing: all tensors
  // Texts that the skill is for, and how a subspace is made of them. phi_layer: see PhiLayer.
  std::vector<std::vector<model::TokenId>> texts;
  SubspaceOptions subspace;
  // Held-out tokens to measure perplexity on, with and without the skill; empty = not measured.
  std::vector<model::TokenId> eval;
  std::string eval_sha256;  // of the text
  const std::atomic<bool>* cancel = nullptr;
  // Called after each tensor that was looked at, with the donor's bytes so far and in total.
  std::function<void(uint64_t done, uint64_t total, std::string_view name)> progress;
  std::function<void(const std::string& line)> note;  // of what takes long, and of odd findings
};

struct SkillAddResult {
  size_t tensors = 0;   // the skill's
  size_t compared = 0;  // with the donor's
  uint64_t bytes = 0;
  // No change that was left out is larger; one that encoding alone explains may be counted.
  double largest_left = 0.0;
  std::string largest_left_name;
  Json record;  // as the file has it
};

// The layer whose output tells texts apart if nothing else is asked: two thirds up.
uint32_t PhiLayer(uint64_t num_layers);

// Grafts from `donor`, a fine-tuned checkpoint of the same base, and commits. Throws Error{kUsage}
// for an id that is taken or can't be one, a donor of another base and if nothing changed by more
// than min_delta; kUnknownName for a mask that is not there; kUnsupported for a standalone skill;
// kInterrupted; what Model::Load and CmfAppender throw. Before Commit the file is not changed.
SkillAddResult AddSkill(formats::CmfAppender* appender, const formats::Checkpoint& donor,
                        const SkillAddOptions& options, ThreadPool& pool);

// Takes record and tensors of skill `id` out of header and directory; their bytes stay until the
// file is compacted. Returns the number of those bytes. Throws Error{kUnknownName} listing the ids,
// kUnsupported if a shard other than the first has tensors of the skill.
uint64_t RemoveSkill(formats::CmfAppender* appender, const std::string& id);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SKILL_EDIT_H_
