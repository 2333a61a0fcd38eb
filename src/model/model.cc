#include "model/model.h"

#include <fmt/format.h>

#include <utility>

#include "model/transformer.h"
#include "model/weights.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

void VerifyAll(const formats::Checkpoint& checkpoint) {
  for (const formats::TensorView& tensor : checkpoint.tensors()) VerifyTensor(checkpoint, tensor);
}

}  // namespace

std::unique_ptr<Model> Model::Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                   const LoadOptions& options, ThreadPool* pool) {
  if (options.verify == Verify::kFull) VerifyAll(*checkpoint);
  ModelConfig config = ReadConfig(*checkpoint);
  Weights weights = BindWeights(
      *checkpoint, config,
      options.verify == Verify::kLazy ? TensorHashes::kVerifyAllButExperts : TensorHashes::kIgnore);
  return std::make_unique<Transformer>(std::move(checkpoint), std::move(config), std::move(weights),
                                       options, pool);
}

}  // namespace moewe::model
