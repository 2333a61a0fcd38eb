#include "model/model.h"

#include <fmt/format.h>

#include <utility>

#include "model/task_mask.h"
#include "model/transformer.h"
#include "model/weights.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

void VerifyAll(const formats::Checkpoint& checkpoint) {
  for (const formats::TensorView& tensor : checkpoint.tensors()) VerifyTensor(checkpoint, tensor);
}

// Skills are read and verified but not run yet: asking for one is an error. So is running a file
// that is nothing but a skill (CMF section 9.1).
void CheckSkill(const formats::Checkpoint& checkpoint, const LoadOptions& options) {
  const std::string& file = checkpoint.files().front();
  if (checkpoint.kind() == formats::CheckpointKind::kCmf) {
    const auto skills = checkpoint.config().find("skills");
    if (skills != checkpoint.config().end() && skills->is_array()) {
      for (const auto& record : *skills) {
        if (!record.is_object() || !record.contains("base_dir_hash")) continue;
        throw Error(ErrorCode::kParse,
                    "a skill without its base is no model; it is to be applied to that base first",
                    {file, "header.skills"});
      }
    }
  }
  const bool no_skill = options.skill.empty() || options.skill == "none";
  if (!no_skill) {
    throw Error(ErrorCode::kUnsupported,
                "running with a skill is not supported yet; use --skill none", {file, "--skill"});
  }
}

}  // namespace

std::unique_ptr<Model> Model::Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                   const LoadOptions& options, ThreadPool* pool) {
  CheckSkill(*checkpoint, options);
  if (options.verify == Verify::kFull) VerifyAll(*checkpoint);
  ModelConfig config = ReadConfig(*checkpoint);
  Weights weights = BindWeights(
      *checkpoint, config,
      options.verify == Verify::kLazy ? TensorHashes::kVerifyAllButExperts : TensorHashes::kIgnore);
  TaskMask mask = SelectTaskMask(*checkpoint, config, weights, options.task);
  return std::make_unique<Transformer>(std::move(checkpoint), std::move(config), std::move(weights),
                                       std::move(mask), options, pool);
}

}  // namespace moewe::model
