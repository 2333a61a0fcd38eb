// The flags of every verb that runs a model, and opening a model by them.
#ifndef MOEWE_CLI_RUN_FLAGS_H_
#define MOEWE_CLI_RUN_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "model/kv_cache.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace moewe::cli {

struct RunFlags {
  std::string memory = "auto";  // a size, auto, all or min
  int threads = 0;              // 0 = all cores of this process
  uint32_t ctx = 0;             // 0 = the model's, at most kDefaultContext, as the budget allows
  uint32_t chunk = 256;         // prefill tokens a step; 1 = token by token
  std::string activations = "int8";
  std::string kv;  // empty = f16, or f32 with f32 activations
  std::string task;
  std::string skill;
  std::string verify = "lazy";
  std::optional<uint64_t> seed;
  bool stats = false;
};

// Declares --memory, --threads, --ctx, --chunk, --activations, --kv, --task, --skill, --verify,
// --stats on `verb`. `flags` must live until the verb has run.
void AddRunFlags(CLI::App* verb, RunFlags* flags);

// A model with what it needs to run, in order of construction.
struct OpenModel {
  std::shared_ptr<const formats::Checkpoint> checkpoint;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<model::Model> model;
  model::KvType kv_type = model::KvType::kF16;
  uint32_t context = 0;  // positions a sequence may have
  uint32_t chunk = 0;

  // KV blocks for `sequences` sequences of `context` positions.
  size_t BlocksFor(size_t sequences) const;
};

// What --memory, --ctx, --kv, --activations and --chunk ask for. Throws Error{kUsage}.
model::MemoryRequest MemoryRequestFrom(const RunFlags& flags);

// The context is --ctx, or what the budget allows (a line says so if that is less than usual).
// Throws what opening and loading throw; Error{kUsage} for malformed flag values,
// Error{kOutOfBudget} with the size of every part if the model does not fit --memory.
OpenModel OpenForRun(const std::string& path, const RunFlags& flags);

// "1,2,3" to ids; Error{kUsage} for anything else, and for ids outside of [0, vocab_size).
std::vector<model::TokenId> ParseIds(const std::string& text, uint32_t vocab_size);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_RUN_FLAGS_H_
