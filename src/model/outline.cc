#include "model/outline.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/log.h"
#include "model/skilled_checkpoint.h"
#include "model/token_bytes.h"
#include "model/trunk_memory.h"

namespace moewe::model {
namespace {

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

ModelOutline::ModelOutline(std::shared_ptr<const formats::Checkpoint> checkpoint,
                           const LoadOptions& options, ThreadPool* pool)
    : checkpoint_(std::move(checkpoint)), skilled_(checkpoint_) {
  RefuseStandaloneSkill(*checkpoint_);
  config_ = ReadConfig(*checkpoint_);
  config_.mtp_runs = options.draft_head && !options.stream && config_.HasMtpHead();
  if (!options.skills.empty()) {
    const SkillOptions how{
        .check_hashes = false, .blend_limit = options.blend_limit, .compute_blend = false};
    skilled_ = std::make_shared<SkilledCheckpoint>(checkpoint_, options.skills, how, pool);
  }
  weights_ = BindWeights(*skilled_, config_, TensorHashes::kIgnore, BytesToRead::kNone);
  RequireComputable(*skilled_, weights_);
  mask_ = SelectTaskMask(*checkpoint_, config_, weights_, TaskFor(*checkpoint_, options));
  Measure();
}

ModelOutline::ModelOutline(std::shared_ptr<const formats::Checkpoint> checkpoint,
                           ModelConfig config)
    : checkpoint_(std::move(checkpoint)), skilled_(checkpoint_), config_(std::move(config)) {
  weights_ = BindWeights(*skilled_, config_, TensorHashes::kIgnore, BytesToRead::kNone);
  RequireComputable(*skilled_, weights_);
  Measure();
}

void ModelOutline::Measure() {
  bytes_per_token_ = WeightBytesPerToken(weights_, config_, mask_);
  stored_ = FindStoredExperts(weights_, config_);
  trunk_memory_ = TrunkMemoryBytes(weights_.tensors, weights_.uses);
  for (size_t i = 0; i < weights_.tensors.size(); ++i) {
    if (weights_.uses[i] != TensorUse::kTrunk) continue;
    const formats::TensorView& tensor = weights_.tensors[i];
    if (tensor.file_offset == formats::kNotInFile) trunk_memory_ += tensor.bytes.size();
    const quant::MatrixShape shape = tensor.matrix();
    if (shape.rows == 1) trunk_memory_ += shape.cols * sizeof(float);  // vectors are decoded
  }
}

}  // namespace moewe::model
