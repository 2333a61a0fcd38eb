#include "model/model.h"

#include <fmt/format.h>

#include <utility>

#include "formats/cmf/cmf_file.h"
#include "model/transformer.h"
#include "model/weights.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

void VerifyAll(const formats::Checkpoint& checkpoint) {
  for (const formats::TensorView& tensor : checkpoint.tensors()) VerifyTensor(checkpoint, tensor);
}

// Masks and skills are read and verified but not run yet: asking for one is an error, and so is a
// file whose default would be to run one.
void CheckTaskAndSkill(const formats::Checkpoint& checkpoint, const LoadOptions& options) {
  const std::string& file = checkpoint.files().front();
  const auto* cmf = dynamic_cast<const formats::CmfFile*>(&checkpoint);
  const bool no_skill = options.skill.empty() || options.skill == "none";
  if (!no_skill) {
    throw Error(ErrorCode::kUnsupported,
                "running with a skill is not supported yet; use --skill none", {file, "--skill"});
  }
  if (options.task == "none") return;
  if (cmf == nullptr || cmf->contents().masks.masks.empty()) {
    if (options.task.empty()) return;
    throw Error(ErrorCode::kUnknownName,
                "there is no task '" + options.task + "': the file has no masks", {file, "--task"});
  }
  throw Error(ErrorCode::kUnsupported,
              "the file has task masks and running with one is not supported yet; use --task none",
              {file, "--task"});
}

}  // namespace

std::unique_ptr<Model> Model::Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                   const LoadOptions& options, ThreadPool* pool) {
  CheckTaskAndSkill(*checkpoint, options);
  if (options.verify == Verify::kFull) VerifyAll(*checkpoint);
  ModelConfig config = ReadConfig(*checkpoint);
  Weights weights = BindWeights(
      *checkpoint, config,
      options.verify == Verify::kLazy ? TensorHashes::kVerifyAllButExperts : TensorHashes::kIgnore);
  return std::make_unique<Transformer>(std::move(checkpoint), std::move(config), std::move(weights),
                                       options, pool);
}

}  // namespace moewe::model
