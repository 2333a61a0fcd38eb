#include "model/model.h"

#include <string>
#include <utility>

#include "model/outline.h"
#include "model/skilled_checkpoint.h"
#include "model/task_mask.h"
#include "model/transformer.h"
#include "model/weights.h"
#include "platform/disk_reader.h"
#include "platform/mapped_pages.h"

namespace moewe::model {
namespace {

void VerifyAll(const formats::Checkpoint& checkpoint) {
  for (const formats::TensorView& tensor : checkpoint.tensors()) VerifyTensor(checkpoint, tensor);
}

// What was looked at before, or is no part of the model, gives its memory back.
void ForgetFiles(const formats::Checkpoint& checkpoint) {
  for (const formats::TensorView& tensor : checkpoint.tensors()) {
    if (tensor.file_offset == formats::kNotInFile) continue;
    ExpectRandomReads(tensor.bytes);
    DropPages(tensor.bytes);
  }
  for (const std::string& file : checkpoint.files()) DropFromPageCache(file);
}

}  // namespace

std::unique_ptr<Model> Model::Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                   const LoadOptions& options, ThreadPool* pool) {
  return Load(ModelOutline(std::move(checkpoint), options, pool), options, pool);
}

std::unique_ptr<Model> Model::Load(ModelOutline outline, const LoadOptions& options,
                                   ThreadPool* pool) {
  const bool full = options.verify == Verify::kFull;
  if (full && !options.stream) VerifyAll(*outline.checkpoint_);
  std::shared_ptr<const formats::Checkpoint> source = outline.checkpoint_;
  if (!options.skills.empty()) {
    // What is streamed is checked when it is read.
    const SkillOptions how{.check_hashes = options.verify == Verify::kLazy,
                           .check_replaced = options.backbone_verified && !options.stream,
                           .blend_limit = options.blend_limit};
    source = std::make_shared<SkilledCheckpoint>(source, options.skills, how, pool);
  }
  outline.weights_ = Weights();  // as many names again, no longer needed
  if (options.stream) outline.config_.mtp_runs = false;
  auto model = Transformer::Load(std::move(source), std::move(outline.config_),
                                 std::move(outline.mask_), options, pool);
  if (full && options.stream) model->VerifyStreamed(*outline.checkpoint_);
  if (options.stream) ForgetFiles(*outline.checkpoint_);
  return model;
}

}  // namespace moewe::model
