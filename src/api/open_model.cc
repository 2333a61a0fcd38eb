#include "api/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/size.h"
#include "model/skilled_checkpoint.h"
#include "moewe/error.h"
#include "platform/memory_limits.h"

namespace moewe::api {
namespace {

model::LoadOptions LoadOptionsOf(const ModelOptions& options) {
  model::LoadOptions load;
  load.activations = options.activations == Activations::kF32 ? kernels::Activations::kF32
                                                              : kernels::Activations::kInt8;
  load.task = options.task;
  load.verify = options.verify == Verify::kFull   ? model::Verify::kFull
                : options.verify == Verify::kNone ? model::Verify::kNone
                                                  : model::Verify::kLazy;
  return load;
}

constexpr const char* kAutoSkill = "auto";

void Check(const ModelOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    throw Error(ErrorCode::kUsage, "threads must be between 0 and 1024");
  }
  if (options.chunk == 0) throw Error(ErrorCode::kUsage, "a chunk has at least one token");
  if (options.sequences == 0) throw Error(ErrorCode::kUsage, "room for one sequence is the least");
  const double blend = options.skill_blend;
  if (!std::isfinite(blend) || blend < 0.0) {
    throw Error(ErrorCode::kUsage, "the temperature of a blend is positive", {"", "--skill-blend"});
  }
  if (blend != 0.0 && options.skill != kAutoSkill) {
    throw Error(ErrorCode::kUsage, "a blend's temperature goes with skill auto",
                {"", "--skill-blend"});
  }
}

}  // namespace

model::MemoryRequest MemoryRequestOf(const ModelOptions& options) {
  model::MemoryRequest request;
  request.least = options.memory == "min";
  request.budget = MemoryBudgetFromText(options.memory, ReadMemoryLimits());
  request.context = options.context;
  request.chunk = options.chunk;
  request.sequences = options.sequences;
  request.logit_rows = options.sequences;
  const bool f32 = options.kv == KvType::kF32 ||
                   (options.kv == KvType::kAuto && options.activations == Activations::kF32);
  request.kv_type = f32 ? model::KvType::kF32 : model::KvType::kF16;
  return request;
}

namespace {

// Everything but whether it fits.
OpenModel Load(const std::string& path, const ModelOptions& options, model::LoadOptions load,
               LogitsOfStep logits) {
  Check(options);
  OpenModel open;
  open.checkpoint = formats::OpenCheckpoint(path, options.scout);
  open.threads = std::make_unique<ThreadPool>(options.threads);
  open.request = MemoryRequestOf(options);
  open.skill_blend = options.skill_blend;
  if (!open.request.least && load.to_run) load.blend_limit = open.request.budget;
  model::LoadOptions first = load;
  const bool routed = options.skill == kAutoSkill;
  if (routed) {
    if (first.task.empty()) first.task = "none";  // the mask is the skill's, who is not known yet
  } else {
    load.skills = model::ParseSkillChoice(options.skill, *open.checkpoint);
    first = load;
  }
  open.model = model::Model::Load(open.checkpoint, first, open.threads.get());
  load.backbone_verified = true;
  if (routed) {
    open.router = std::make_unique<model::SkillRouter>(open.checkpoint, load, open.threads.get());
    open.request.router = &open.router->config();
    open.request.skill_reserve = model::MostExtraBytes(*open.checkpoint, open.router->ids(),
                                                       /*pairs=*/options.skill_blend != 0.0);
  }
  open.load = std::move(load);
  if (logits == LogitsOfStep::kEvery) {
    open.request.logit_rows = model::LogitRowsOfStep(open.model->config(), options.chunk);
  }
  open.plan = model::PlanMemory(*open.model, open.request);
  open.kv_type = open.request.kv_type;
  open.context = open.plan.context;
  open.chunk = std::min(options.chunk, open.context);
  return open;
}

}  // namespace

OpenModel Open(const std::string& path, const ModelOptions& options, LogitsOfStep logits) {
  OpenModel open = Load(path, options, LoadOptionsOf(options), logits);
  for (const std::string& warning : open.model->config().warnings.list) LogWarning(warning);
  model::RequireFit(open.plan, open.checkpoint->files().front());
  if (open.plan.shrunk) {
    LogInfo(fmt::format("the context is {} positions: the memory budget of {} allows no more",
                        open.plan.context, FormatSize(open.plan.budget)));
  }
  return open;
}

OpenModel OpenToPlan(const std::string& path, const ModelOptions& options) {
  model::LoadOptions load = LoadOptionsOf(options);
  load.verify = model::Verify::kNone;
  load.to_run = false;
  return Load(path, options, std::move(load), LogitsOfStep::kLast);
}

std::vector<model::SkillEnergy> OpenModel::Route(std::span<const model::TokenId> prompt) {
  if (prompt.size() > context) {
    throw Error(ErrorCode::kUsage, fmt::format("context length exceeded: {} tokens, {} positions",
                                               prompt.size(), context));
  }
  std::vector<model::SkillEnergy> energies = router->Route(prompt, chunk);
  checkpoint->CheckReadable();
  return energies;
}

model::SkillChoice OpenModel::Choose(std::span<const model::SkillEnergy> energies) const {
  return model::ChooseSkills(
      energies, skill_blend == 0.0 ? std::nullopt : std::optional<double>(skill_blend));
}

void OpenModel::Bind(const model::SkillChoice& skills) {
  model.reset();  // what its blended skills took is free for the next
  load.skills = skills;
  std::unique_ptr<model::Model> loaded = model::Model::Load(checkpoint, load, threads.get());
  // The context and what is reserved for skills were settled when the model was opened.
  model::MemoryRequest bound = request;
  bound.context = context;
  bound.skill_reserve = 0;
  const model::MemoryPlan now = model::PlanMemory(*loaded, bound);
  model::RequireFit(now, checkpoint->files().front());
  plan = now;
  model = std::move(loaded);
}

}  // namespace moewe::api
