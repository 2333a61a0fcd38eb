#include "model/model.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "model/skilled_checkpoint.h"
#include "model/task_mask.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace moewe::model {
namespace {

void VerifyAll(const formats::Checkpoint& checkpoint) {
  for (const formats::TensorView& tensor : checkpoint.tensors()) VerifyTensor(checkpoint, tensor);
}

// The mask to select: what is asked for, else what belongs to the skills.
std::string TaskFor(const formats::Checkpoint& checkpoint, const LoadOptions& options) {
  if (!options.task.empty()) return options.task;
  const std::string linked = LinkedTask(checkpoint, options.skills);
  if (!linked.empty()) {
    LogInfo(fmt::format("task '{}' is active, it belongs to skill {}; --task none runs without",
                        linked, SkillChoiceText(options.skills)));
  }
  return linked;
}

}  // namespace

std::unique_ptr<Model> Model::Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                   const LoadOptions& options, ThreadPool* pool) {
  RefuseStandaloneSkill(*checkpoint);
  if (options.verify == Verify::kFull) VerifyAll(*checkpoint);
  ModelConfig config = ReadConfig(*checkpoint);
  const bool lazy = options.verify == Verify::kLazy;
  std::shared_ptr<const formats::Checkpoint> source = checkpoint;
  if (!options.skills.empty()) {
    const SkillOptions how{.check_hashes = lazy,
                           .check_replaced = options.backbone_verified,
                           .blend_limit = options.blend_limit,
                           .compute_blend = options.to_run};
    source = std::make_shared<SkilledCheckpoint>(checkpoint, options.skills, how, pool);
  }
  Weights weights = BindWeights(*source, config, HashesAtLoad(options));
  TaskMask mask = SelectTaskMask(*checkpoint, config, weights, TaskFor(*checkpoint, options));
  return std::make_unique<Transformer>(std::move(source), std::move(config), std::move(weights),
                                       std::move(mask), options, pool);
}

}  // namespace moewe::model
