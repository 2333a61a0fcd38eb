// A model as far as names, shapes and sizes tell, before a byte of its weights is read: what a
// memory plan is made from, and what then becomes a model that can run.
#ifndef MOEWE_MODEL_OUTLINE_H_
#define MOEWE_MODEL_OUTLINE_H_

#include <cstdint>
#include <memory>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/model.h"
#include "model/stored_experts.h"
#include "model/task_mask.h"
#include "model/weights.h"
#include "platform/thread_pool.h"

namespace moewe::model {

// Immutable.
class ModelOutline {
 public:
  // Throws as Model::Load, but for what only the bytes of weights can show.
  ModelOutline(std::shared_ptr<const formats::Checkpoint> checkpoint, const LoadOptions& options,
               ThreadPool* pool);

  // Of a part of a model that needs no more of `checkpoint` than `config` says: without mask and
  // skills.
  ModelOutline(std::shared_ptr<const formats::Checkpoint> checkpoint, ModelConfig config);

  const ModelConfig& config() const { return config_; }
  // Seen with the skills; the values of blended tensors are zeros.
  const formats::Checkpoint& checkpoint() const { return *skilled_; }
  // Vectors are zeros, too.
  const Weights& weights() const { return weights_; }

  // As of the model.
  uint64_t weight_bytes_per_token() const { return bytes_per_token_; }
  uint64_t weight_bytes_total() const { return weights_.bytes_total; }
  uint64_t expert_bytes_total() const { return weights_.expert_bytes; }

  // What a streamed model is: memory of all that is no routed expert, and those that are streamed.
  uint64_t trunk_memory() const { return trunk_memory_; }
  const StoredExperts& stored() const { return stored_; }

 private:
  friend class Model;
  void Measure();

  std::shared_ptr<const formats::Checkpoint> checkpoint_;  // without skills
  std::shared_ptr<const formats::Checkpoint> skilled_;
  ModelConfig config_;
  Weights weights_;
  TaskMask mask_;
  uint64_t bytes_per_token_ = 0;
  uint64_t trunk_memory_ = 0;
  StoredExperts stored_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_OUTLINE_H_
