#include "api/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/size.h"
#include "experts/expert_frequencies.h"
#include "model/skilled_checkpoint.h"
#include "model/trunk_memory.h"
#include "moewe/error.h"
#include "platform/disk_reader.h"
#include "platform/memory_limits.h"

namespace moewe::api {
namespace {

// The most that are drafted where gain decides: what follows is rarely right, or comes with the
// next step.
constexpr uint32_t kDraftsByGain = 8;

model::KvType KvTypeOf(const ModelOptions& options) {
  switch (options.kv) {
    case KvType::kF16:
      return model::KvType::kF16;
    case KvType::kF32:
      return model::KvType::kF32;
    case KvType::kQ8:
      return model::KvType::kQ8;
    case KvType::kAuto:
      break;
  }
  return options.activations == Activations::kF32 ? model::KvType::kF32 : model::KvType::kF16;
}

model::LoadOptions LoadOptionsOf(const ModelOptions& options) {
  model::LoadOptions load;
  load.activations = options.activations == Activations::kF32 ? kernels::Activations::kF32
                                                              : kernels::Activations::kInt8;
  load.task = options.task;
  load.verify = options.verify == Verify::kFull   ? model::Verify::kFull
                : options.verify == Verify::kNone ? model::Verify::kNone
                                                  : model::Verify::kLazy;
  load.draft_head = options.speculate.value_or(kDraftsByGain) > 0;
  return load;
}

constexpr const char* kAutoSkill = "auto";

void Check(const ModelOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    throw Error(ErrorCode::kUsage, "threads must be between 0 and 1024");
  }
  if (options.speculate.value_or(0) > ModelOptions::kMostSpeculated) {
    throw Error(ErrorCode::kUsage,
                fmt::format("at most {} tokens are speculated on", ModelOptions::kMostSpeculated));
  }
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
  request.draft_rows = options.speculate.value_or(kDraftsByGain);
  request.needs_drafts = options.speculate.has_value();
  request.kv_type = KvTypeOf(options);
  return request;
}

namespace {

bool IsRouted(const ModelOptions& options) { return options.skill == kAutoSkill; }

// Before a prompt has chosen skills: the mask is the skill's, which is not known yet.
model::LoadOptions FirstLoad(model::LoadOptions load, const ModelOptions& options) {
  if (IsRouted(options) && load.task.empty()) load.task = "none";
  return load;
}

// What a prompt can be routed to: each skill, or each pair of them.
std::vector<model::SkillChoice> Choices(const std::vector<std::string>& ids, bool pairs) {
  std::vector<model::SkillChoice> choices;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!pairs || ids.size() < 2) choices.push_back({{ids[i], 1.0}});
    for (size_t j = i + 1; pairs && j < ids.size(); ++j) {
      choices.push_back({{ids[i], 0.5}, {ids[j], 0.5}});
    }
  }
  return choices;
}

// What the skills' tensors take in a trunk that is not read anew, at most: pages of their own, of
// which the backbone has others' parts.
uint64_t SharedPages(const formats::Checkpoint& checkpoint, const model::SkillChoice& choice) {
  uint64_t tensors = 0;
  for (const model::WeightedSkill& skill : choice) {
    for (const formats::TensorView* tensor : model::TensorsOfSkill(checkpoint, skill.id)) {
      if (tensor->name.find(".experts.") == std::string::npos) ++tensors;  // others are streamed
    }
  }
  return 2 * kDiskAlignment * tensors;
}

// What a streamed model with chosen skills may take more than the backbone: by outlines, since it
// depends on where tensors lie, which experts are blended, and how large the largest one is.
uint64_t StreamedReserve(const PlannedModel& planned, bool pairs) {
  const uint64_t backbone = model::LeastStreamedBytes(*planned.model);
  uint64_t most = backbone;
  for (const model::SkillChoice& choice :
       Choices(model::SkillRouter::IdsOf(*planned.checkpoint), pairs)) {
    model::LoadOptions load = planned.load;
    load.skills = choice;
    load.task = "none";
    const model::ModelOutline outline(planned.checkpoint, load, planned.threads.get());
    most = std::max(most,
                    model::LeastStreamedBytes(outline) + SharedPages(*planned.checkpoint, choice));
  }
  return most - backbone;
}

// Streamed experts as a plan has them. Folders belong to other programs, too: nothing is put beside
// their files.
void SetStream(const model::MemoryPlan& plan, const model::StoredExperts& stored,
               const formats::Checkpoint& checkpoint, model::LoadOptions* load) {
  const auto trunk = load->stream ? load->stream->trunk : nullptr;
  load->stream.reset();
  if (!plan.streamed) return;
  model::StreamOptions& stream = load->stream.emplace();
  stream.trunk = trunk;
  stream.arena_bytes = stored.ArenaBytes(plan.slots);
  if (checkpoint.kind() != formats::CheckpointKind::kHuggingFace) {
    stream.frequencies = experts::FrequencyPath(checkpoint.files().front());
  }
}

// Everything that comes before reading weights.
PlannedModel Plan(const std::string& path, const ModelOptions& options, bool to_run,
                  LogitsOfStep logits, const BesideBytes& beside) {
  Check(options);
  PlannedModel planned;
  planned.checkpoint = formats::OpenCheckpoint(path, options.scout);
  planned.threads = std::make_unique<ThreadPool>(options.threads);
  planned.request = MemoryRequestOf(options);
  planned.load = LoadOptionsOf(options);
  model::MemoryRequest& request = planned.request;
  if (!request.least && to_run) planned.load.blend_limit = request.budget;
  if (IsRouted(options)) {
    planned.routed =
        std::make_unique<model::ModelOutline>(model::SkillRouter::OutlineFor(planned.checkpoint));
    request.router = planned.routed.get();
    request.skill_reserve =
        model::MostExtraBytes(*planned.checkpoint, model::SkillRouter::IdsOf(*planned.checkpoint),
                              /*pairs=*/options.skill_blend != 0.0);
  } else {
    planned.load.skills = model::ParseSkillChoice(options.skill, *planned.checkpoint);
  }
  planned.model = std::make_unique<model::ModelOutline>(
      planned.checkpoint, FirstLoad(planned.load, options), planned.threads.get());
  if (IsRouted(options) && planned.model->stored().count != 0) {
    request.streamed_skill_reserve = StreamedReserve(planned, options.skill_blend != 0.0);
  }
  if (logits == LogitsOfStep::kEvery) {
    const uint32_t chunk = options.chunk != 0 ? options.chunk : model::kStreamedChunk;
    request.logit_rows = model::LogitRowsOfStep(planned.model->config(), chunk);
  }
  if (beside) request.beside = beside(*planned.model);
  planned.plan = model::PlanMemory(*planned.model, request);
  if (planned.model->config().mtp_runs && planned.plan.draft_rows == 0) {
    // Without room for drafts its head is not loaded.
    planned.load.draft_head = false;
    planned.model = std::make_unique<model::ModelOutline>(
        planned.checkpoint, FirstLoad(planned.load, options), planned.threads.get());
    planned.plan = model::PlanMemory(*planned.model, request);
  }
  SetStream(planned.plan, planned.model->stored(), *planned.checkpoint, &planned.load);
  return planned;
}

void LogPlan(const model::MemoryPlan& plan) {
  if (plan.shrunk) {
    LogInfo(fmt::format("the context is {} positions: the memory budget of {} allows no more",
                        plan.context, FormatSize(plan.budget)));
  }
  if (plan.streamed) {
    LogInfo(fmt::format("experts are streamed: {} of {} have room in the memory budget of {}",
                        FormatSize(plan.arena), FormatSize(plan.experts), FormatSize(plan.budget)));
  }
}

}  // namespace

OpenModel Open(const std::string& path, const ModelOptions& options, LogitsOfStep logits,
               const BesideBytes& beside) {
  PlannedModel planned = Plan(path, options, /*to_run=*/true, logits, beside);
  for (const std::string& warning : planned.model->config().warnings.list) LogWarning(warning);
  model::RequireFit(planned.plan, planned.checkpoint->files().front());
  LogPlan(planned.plan);
  OpenModel open;
  open.checkpoint = std::move(planned.checkpoint);
  open.threads = std::move(planned.threads);
  open.routed = std::move(planned.routed);
  open.load = std::move(planned.load);
  open.request = planned.request;
  open.plan = planned.plan;
  open.skill_blend = options.skill_blend;
  open.kv_type = open.request.kv_type;
  open.context = open.plan.context;
  open.chunk = std::min(open.plan.chunk, open.context);
  // From here on a resident model's reserve is what the router takes that stays beside it.
  open.request.skill_reserve = 0;
  if (open.routed != nullptr && open.load.stream) {
    open.load.stream->trunk = std::make_shared<model::TrunkMemory>();
    open.request.skill_reserve = model::kReaderBytes + model::LeastStreamedBytes(*open.routed);
  }
  open.model = model::Model::Load(std::move(*planned.model), FirstLoad(open.load, options),
                                  open.threads.get());
  open.load.backbone_verified = true;
  if (open.routed != nullptr) {
    model::LoadOptions of_router = open.load;
    const model::StoredExperts& stored = open.routed->stored();
    if (of_router.stream) {
      of_router.stream->arena_bytes = stored.ArenaBytes(stored.least_slots);
      of_router.stream->frequencies.clear();
      of_router.stream->trunk = nullptr;
    }
    open.router =
        std::make_unique<model::SkillRouter>(open.checkpoint, of_router, open.threads.get());
  }
  return open;
}

PlannedModel OpenToPlan(const std::string& path, const ModelOptions& options) {
  return Plan(path, options, /*to_run=*/false, LogitsOfStep::kLast, {});
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
  model::ModelOutline outline(checkpoint, load, threads.get());
  // The context and what is reserved for skills were settled when the model was opened.
  model::MemoryRequest bound = request;
  bound.budget = plan.budget;
  bound.least = false;
  bound.context = context;
  bound.chunk = chunk;
  bound.streamed_skill_reserve = SharedPages(*checkpoint, skills);
  const model::MemoryPlan now = model::PlanMemory(outline, bound);
  model::RequireFit(now, checkpoint->files().front());
  SetStream(now, outline.stored(), *checkpoint, &load);
  model = model::Model::Load(std::move(outline), load, threads.get());
  plan = now;
}

}  // namespace moewe::api
