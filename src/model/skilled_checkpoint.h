// A CMF file seen with skills active (section 9): for every tensor either the backbone's entry or
// the skill's. One skill copies nothing, its tensors are views into the file; a blend of several
// has the weighted sums of what they replace in f32.
#ifndef MOEWE_MODEL_SKILLED_CHECKPOINT_H_
#define MOEWE_MODEL_SKILLED_CHECKPOINT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "model/checkpoint_view.h"
#include "model/skill_choice.h"
#include "platform/thread_pool.h"

namespace moewe::model {

struct SkillOptions {
  // Stored hashes of the tensors that skills bring are checked: a blend's when it is computed, with
  // `check_replaced` those of a single skill too (else whoever binds them does).
  bool check_hashes = true;
  bool check_replaced = false;
  // What blended tensors may take.
  uint64_t blend_limit = std::numeric_limits<uint64_t>::max();
  // False: blended tensors have their shape and place, not their values. For plans.
  bool compute_blend = true;
};

class SkilledCheckpoint : public CheckpointView {
 public:
  // Throws Error{kMissingTensor} for a tensor that replaces nothing, {kParse} for one of another
  // shape, {kUnsupported} for a blend of something that is no weights, {kHashMismatch},
  // {kOutOfBudget}. `pool` is used here only.
  SkilledCheckpoint(std::shared_ptr<const formats::Checkpoint> base, const SkillChoice& choice,
                    const SkillOptions& options, ThreadPool* pool);

  uint64_t blended_bytes() const { return blended_bytes_; }

 private:
  struct Free {
    void operator()(float* values) const;
  };
  using Values = std::unique_ptr<float, Free>;

  class Blender;

  std::vector<Values> blended_;  // what views point at
  uint64_t blended_bytes_ = 0;
};

// The tensors of one skill of `checkpoint`, under their stored names ("skill.sql.model..."), in
// directory order.
std::vector<const formats::TensorView*> TensorsOfSkill(const formats::Checkpoint& checkpoint,
                                                       const std::string& id);

// Bytes of weights that running with `choice` takes more than the backbone alone; 0 if less.
uint64_t ExtraBytes(const formats::Checkpoint& checkpoint, const SkillChoice& choice);

// The most of that over every one of `ids`, or with `pairs` over every two of them.
uint64_t MostExtraBytes(const formats::Checkpoint& checkpoint, const std::vector<std::string>& ids,
                        bool pairs);

// Of a checkpoint that may be such a view; else 0.
uint64_t BlendedBytes(const formats::Checkpoint& checkpoint);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_SKILLED_CHECKPOINT_H_
