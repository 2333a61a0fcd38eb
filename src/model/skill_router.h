// Routing a prompt to skills by what it leaves in the residual stream of the backbone (CMF section
// 9): phi is the mean over the prompt's positions of the stream after a layer.
#ifndef MOEWE_MODEL_SKILL_ROUTER_H_
#define MOEWE_MODEL_SKILL_ROUTER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/model.h"
#include "model/outline.h"
#include "model/skill_choice.h"
#include "platform/thread_pool.h"

namespace moewe::model {

// Runs the first layers of a checkpoint's backbone, without mask, in f32: what it gives depends on
// the tokens alone. One caller at a time.
class ResidualReader {
 public:
  // `layers` are those after which the stream is read. In a looped model they count in the first
  // pass. Of `options` only what is said about hashes counts. Throws as Model::Load. `pool` must
  // outlive the reader.
  ResidualReader(std::shared_ptr<const formats::Checkpoint> checkpoint,
                 std::vector<uint32_t> layers, const LoadOptions& options, ThreadPool* pool);

  // Of the layers that run: what a call's keys and values take follows from it (KvType::kF32).
  const ModelConfig& config() const { return model_->config(); }

  // The mean over all positions of `tokens`, [layers][hidden]. `chunk` tokens a step; the result
  // does not depend on it. Throws Error{kUsage} for no tokens, and as Model::Forward.
  std::vector<std::vector<double>> Means(std::span<const TokenId> tokens, uint32_t chunk);

 private:
  std::vector<uint32_t> layers_;
  std::unique_ptr<Model> model_;
};

// E = (|r|² - |B r|²) / |phi|², at least 0, with r = phi - mean.
double EnergyOf(const formats::cmf::SkillSelection& selection, std::span<const double> phi);

class SkillRouter {
 public:
  // Over all skills of `checkpoint` that have a selection. Throws Error{kUnsupported} if there is
  // none or its metric is unknown, and as Model::Load.
  SkillRouter(std::shared_ptr<const formats::Checkpoint> checkpoint, const LoadOptions& options,
              ThreadPool* pool);

  // The layers that a router over `checkpoint` would run, and the ids that a prompt can be routed
  // to; no weights are read. Throws as the constructor, but for what their bytes show.
  static ModelOutline OutlineFor(std::shared_ptr<const formats::Checkpoint> checkpoint);
  static std::vector<std::string> IdsOf(const formats::Checkpoint& checkpoint);

  // Ascending; equal ones in the order of the registry. Throws as ResidualReader::Means,
  // Error{kInternal} when an energy is no number.
  std::vector<SkillEnergy> Route(std::span<const TokenId> prompt, uint32_t chunk);

 private:
  std::shared_ptr<const formats::Checkpoint> checkpoint_;
  std::vector<uint32_t> layers_;
  ResidualReader reader_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_SKILL_ROUTER_H_
