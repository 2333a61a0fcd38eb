#include "cli/run_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "cli/model_tokenizer.h"
#include "moewe/error.h"
#include "platform/memory_limits.h"

namespace moewe::cli {
namespace {

// Activations of one step: a few rows of the widest layer each, and one row of logits a chunk.
uint64_t ActivationBytes(const model::ModelConfig& config, uint32_t chunk) {
  const uint64_t width = std::max<uint64_t>(config.hidden_size, config.intermediate_size);
  return sizeof(float) * (uint64_t{8} * chunk * width + config.vocab_size);
}

void CheckBudget(const OpenModel& open, const RunFlags& flags) {
  if (flags.memory == "min") return;
  const uint64_t budget = MemoryBudgetFromText(flags.memory, ReadMemoryLimits());
  const model::ModelConfig& config = open.model->config();
  const uint64_t weights = open.model->weight_bytes_total();
  const uint64_t kv = open.BlocksFor(1) * model::KvPool::BytesPerBlock(config, open.kv_type);
  const uint64_t step = ActivationBytes(config, open.chunk);
  if (weights + kv + step <= budget) return;
  throw Error(
      ErrorCode::kOutOfBudget,
      fmt::format("{} are needed ({} weights, {} KV cache of {} positions, {} activations), "
                  "but the budget is {}",
                  FormatSize(weights + kv + step), FormatSize(weights), FormatSize(kv),
                  open.context, FormatSize(step), FormatSize(budget)),
      {open.checkpoint->files().front(), "--memory"});
}

}  // namespace

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
  open.kv_type =
      flags.kv == "f32" || (flags.kv.empty() && f32) ? model::KvType::kF32 : model::KvType::kF16;
  const uint32_t longest = open.model->config().max_position_embeddings;
  open.context = flags.ctx != 0 ? flags.ctx : std::min(longest, kDefaultContext);
  if (open.context > longest) {
    throw Error(ErrorCode::kUsage, fmt::format("--ctx {} is more than the model's {} positions",
                                               open.context, longest));
  }
  open.chunk = std::min(flags.chunk, open.context);
  CheckBudget(open, flags);
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
