// Opening a model by options: what the public API and the verbs that look inside share.
#ifndef MOEWE_API_OPEN_MODEL_H_
#define MOEWE_API_OPEN_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "model/kv_cache.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "model/outline.h"
#include "model/skill_router.h"
#include "moewe/moewe.h"
#include "platform/thread_pool.h"

namespace moewe::api {

// A model with what it needs to run, in order of construction.
struct OpenModel {
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<model::Model> model;
  // Skill "auto": what prompts are routed by. Null otherwise.
  std::unique_ptr<model::SkillRouter> router;
  model::KvType kv_type = model::KvType::kF16;
  uint32_t context = 0;  // positions a sequence may have
  uint32_t chunk = 0;
  // How the model was loaded and what it takes.
  model::LoadOptions load;
  model::MemoryRequest request;
  model::MemoryPlan plan;
  double skill_blend = 0.0;
  std::unique_ptr<model::ModelOutline>
      routed;  // with a router: what it runs; `request` points to it

  // With a router: the energies of `prompt`, ascending, and the skills that follow from them.
  // Throws as model::SkillRouter::Route.
  std::vector<model::SkillEnergy> Route(std::span<const model::TokenId> prompt);
  model::SkillChoice Choose(std::span<const model::SkillEnergy> energies) const;
  // Loads the model anew with other skills, from the same checkpoint, for the same context. If that
  // throws (as Open does), there is no model until a later call succeeds.
  void Bind(const model::SkillChoice& skills);

  // KV blocks that so many sequences of full length need.
  size_t BlocksFor(size_t sequences) const { return sequences * model::BlocksFor(context); }
};

// What `options` say about memory, as model::PlanMemory takes it. Throws Error{kUsage}.
model::MemoryRequest MemoryRequestOf(const ModelOptions& options);

// Which logits a step gives: memory is planned for them.
enum class LogitsOfStep : uint8_t {
  kLast,   // of each sequence's last token
  kEvery,  // of model::LogitRowsOfStep() tokens, as perplexity and `logits --all` ask for
};

// Bytes that the caller needs beside the model that it opens, for its own purposes.
using BesideBytes = std::function<uint64_t(const model::ModelOutline&)>;

// The context is what `options` ask for, or what the budget allows (a line says so if that is less
// than usual). Throws what opening and loading throw; Error{kUsage} for options out of range,
// Error{kOutOfBudget} with the size of every part if the model does not fit.
//
// With skill "auto" the model is the backbone until Bind.
OpenModel Open(const std::string& path, const ModelOptions& options,
               LogitsOfStep logits = LogitsOfStep::kLast, const BesideBytes& beside = {});

// What opening a model would take, which may be more than there is. No weights are read.
struct PlannedModel {
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<model::ModelOutline> model;
  std::unique_ptr<model::ModelOutline> routed;  // as OpenModel
  model::LoadOptions load;                      // with streaming, if it is planned
  model::MemoryRequest request;
  model::MemoryPlan plan;
};

// Throws as Open, but for a plan that does not fit and for what the bytes of weights show.
PlannedModel OpenToPlan(const std::string& path, const ModelOptions& options);

}  // namespace moewe::api

#endif  // MOEWE_API_OPEN_MODEL_H_
