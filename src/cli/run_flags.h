// The flags of every verb that runs a model, and opening a model by them.
#ifndef MOEWE_CLI_RUN_FLAGS_H_
#define MOEWE_CLI_RUN_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/open_model.h"
#include "model/model.h"
#include "moewe/moewe.h"

namespace moewe::cli {

struct RunFlags {
  std::string memory = "auto";  // a size, auto, all or min
  int threads = 0;              // 0 = all cores of this process
  uint32_t ctx = 0;             // 0 = the model's, at most 4096, as the budget allows
  uint32_t chunk = 0;           // prefill tokens a step; 1 = token by token; 0 = as usual
  std::string activations = "int8";
  std::string kv;  // empty = f16, or f32 with f32 activations
  std::string task;
  std::string skill;
  double skill_blend = 0.0;           // 0 = no blend
  std::optional<uint32_t> speculate;  // empty = auto, 0 = off
  std::string verify = "lazy";
  std::string scout;  // of a .smoe vault; empty = the companion
  std::optional<uint64_t> seed;
  bool stats = false;
};

// Declares --memory, --threads, --ctx, --chunk, --activations, --kv, --task, --skill,
// --skill-blend, --speculate, --verify, --scout, --stats on `verb`. `flags` must live until the
// verb has run.
void AddRunFlags(CLI::App* verb, RunFlags* flags);

// What they ask for.
ModelOptions ModelOptionsOf(const RunFlags& flags);

// Their memory, in the words of a plan. Throws Error{kUsage}.
inline model::MemoryRequest MemoryRequestFrom(const RunFlags& flags) {
  return api::MemoryRequestOf(ModelOptionsOf(flags));
}

// For verbs that look inside of a model.
using api::LogitsOfStep;
using api::OpenModel;
inline OpenModel OpenForRun(const std::string& path, const RunFlags& flags,
                            LogitsOfStep logits = LogitsOfStep::kLast,
                            const api::BesideBytes& beside = {}) {
  ModelOptions options = ModelOptionsOf(flags);
  options.speculate = 0;  // they compute what they are given
  return api::Open(path, options, logits, beside);
}

// Throws Error{kUsage} for --skill auto: `verb` has no prompt that a skill could be chosen by.
void RefuseAutoSkill(const RunFlags& flags, const char* verb);

// "1,2,3" to ids; Error{kUsage} for anything else, and for ids outside of [0, vocab_size).
std::vector<model::TokenId> ParseIds(const std::string& text, uint32_t vocab_size);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_RUN_FLAGS_H_
