#include "cli/run_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/size.h"
#include "cli/model_tokenizer.h"
#include "moewe/error.h"
#include "platform/memory_limits.h"

namespace moewe::cli {

void AddRunFlags(CLI::App* verb, RunFlags* flags) {
  verb->add_option("--memory", flags->memory, "budget: 8GiB, 500MB, auto, all, min");
  verb->add_option("--threads", flags->threads, "threads (default: the cores of this process)")
      ->check(CLI::Range(0, 1024));
  verb->add_option("--ctx", flags->ctx, "positions a sequence may have");
  verb->add_option("--chunk", flags->chunk, "prefill tokens a step; 1 = token by token")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--activations", flags->activations, "int8 or f32")
      ->check(CLI::IsMember({"int8", "f32"}));
  verb->add_option("--kv", flags->kv, "KV cache: f16 or f32")->check(CLI::IsMember({"f16", "f32"}));
  verb->add_option("--task", flags->task, "task mask of the file, or none");
  verb->add_option("--skill", flags->skill, "skill of the file, or none");
  verb->add_option("--verify", flags->verify, "hashes: lazy, full or none")
      ->check(CLI::IsMember({"lazy", "full", "none"}));
  verb->add_option("--seed", flags->seed, "seed of the sampler");
  verb->add_flag("--stats", flags->stats, "statistics on stderr");
}

size_t OpenModel::BlocksFor(size_t sequences) const {
  return sequences * ((context + model::kBlockTokens - 1) / model::kBlockTokens);
}

model::MemoryRequest MemoryRequestFrom(const RunFlags& flags) {
  model::MemoryRequest request;
  request.least = flags.memory == "min";
  request.budget = MemoryBudgetFromText(flags.memory, ReadMemoryLimits());
  request.context = flags.ctx;
  request.chunk = flags.chunk;
  const bool f32 = flags.kv == "f32" || (flags.kv.empty() && flags.activations == "f32");
  request.kv_type = f32 ? model::KvType::kF32 : model::KvType::kF16;
  return request;
}

OpenModel OpenForRun(const std::string& path, const RunFlags& flags) {
  OpenModel open;
  open.checkpoint = formats::OpenCheckpoint(path);
  open.threads = std::make_unique<ThreadPool>(flags.threads);
  model::LoadOptions options;
  const bool f32 = flags.activations == "f32";
  options.activations = f32 ? kernels::Activations::kF32 : kernels::Activations::kInt8;
  options.task = flags.task;
  options.skill = flags.skill;
  options.verify = flags.verify == "full"   ? model::Verify::kFull
                   : flags.verify == "none" ? model::Verify::kNone
                                            : model::Verify::kLazy;
  open.model = model::Model::Load(open.checkpoint, options, open.threads.get());
  for (const std::string& warning : open.model->config().warnings.list) LogWarning(warning);
  const model::MemoryRequest request = MemoryRequestFrom(flags);
  const model::MemoryPlan plan = model::PlanMemory(*open.model, request);
  model::RequireFit(plan, open.checkpoint->files().front());
  if (plan.shrunk) {
    LogInfo(fmt::format("the context is {} positions: the memory budget of {} allows no more",
                        plan.context, FormatSize(plan.budget)));
  }
  open.kv_type = request.kv_type;
  open.context = plan.context;
  open.chunk = std::min(flags.chunk, open.context);
  return open;
}

std::vector<model::TokenId> ParseIds(const std::string& text, uint32_t vocab_size) {
  std::vector<model::TokenId> ids = ParseTokenIds(text);
  for (const model::TokenId id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab_size) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("token id {} is outside of the vocabulary of {}", id, vocab_size));
    }
  }
  return ids;
}

}  // namespace moewe::cli
