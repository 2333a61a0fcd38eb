#include "api/open_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/size.h"
#include "moewe/error.h"
#include "platform/memory_limits.h"

namespace moewe::api {
namespace {

model::LoadOptions LoadOptionsOf(const ModelOptions& options) {
  model::LoadOptions load;
  load.activations = options.activations == Activations::kF32 ? kernels::Activations::kF32
                                                              : kernels::Activations::kInt8;
  load.task = options.task;
  load.skill = options.skill;
  load.verify = options.verify == Verify::kFull   ? model::Verify::kFull
                : options.verify == Verify::kNone ? model::Verify::kNone
                                                  : model::Verify::kLazy;
  return load;
}

void Check(const ModelOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    throw Error(ErrorCode::kUsage, "threads must be between 0 and 1024");
  }
  if (options.chunk == 0) throw Error(ErrorCode::kUsage, "a chunk has at least one token");
  if (options.sequences == 0) throw Error(ErrorCode::kUsage, "room for one sequence is the least");
}

}  // namespace

model::MemoryRequest MemoryRequestOf(const ModelOptions& options) {
  model::MemoryRequest request;
  request.least = options.memory == "min";
  request.budget = MemoryBudgetFromText(options.memory, ReadMemoryLimits());
  request.context = options.context;
  request.chunk = options.chunk;
  request.sequences = options.sequences;
  const bool f32 = options.kv == KvType::kF32 ||
                   (options.kv == KvType::kAuto && options.activations == Activations::kF32);
  request.kv_type = f32 ? model::KvType::kF32 : model::KvType::kF16;
  return request;
}

OpenModel Open(const std::string& path, const ModelOptions& options) {
  Check(options);
  OpenModel open;
  open.checkpoint = formats::OpenCheckpoint(path);
  open.threads = std::make_unique<ThreadPool>(options.threads);
  open.model = model::Model::Load(open.checkpoint, LoadOptionsOf(options), open.threads.get());
  for (const std::string& warning : open.model->config().warnings.list) LogWarning(warning);
  const model::MemoryRequest request = MemoryRequestOf(options);
  const model::MemoryPlan plan = model::PlanMemory(*open.model, request);
  model::RequireFit(plan, open.checkpoint->files().front());
  if (plan.shrunk) {
    LogInfo(fmt::format("the context is {} positions: the memory budget of {} allows no more",
                        plan.context, FormatSize(plan.budget)));
  }
  open.kv_type = request.kv_type;
  open.context = plan.context;
  open.chunk = std::min(options.chunk, open.context);
  return open;
}

}  // namespace moewe::api
