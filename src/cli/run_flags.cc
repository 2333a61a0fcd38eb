#include "cli/run_flags.h"

#include <fmt/format.h>

#include "cli/model_tokenizer.h"
#include "cli/number_flags.h"
#include "cli/verbs.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

std::optional<uint32_t> ParseSpeculate(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "off") return 0;
  // What is no number at all is told about the words, too.
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--speculate takes auto, off or a number, not '{}'", text),
                {"", "--speculate"});
  }
  return static_cast<uint32_t>(ParseWhole("--speculate", text, 1, ModelOptions::kMostSpeculated));
}

}  // namespace

void AddRunFlags(CLI::App* verb, RunFlags* flags) {
  verb->add_option("--memory", flags->memory, "budget: 8GiB, 500MB, auto, all, min");
  AddThreads(verb, &flags->threads);
  AddNumber(verb, "--ctx", &flags->ctx, 1u, UINT32_MAX, "positions a sequence may have");
  AddNumber(verb, "--chunk", &flags->chunk, 1, 1 << 20,
            "prefill tokens a step; 1 = token by token");
  verb->add_option("--activations", flags->activations, "int8 or f32")
      ->check(CLI::IsMember({"int8", "f32"}));
  verb->add_option("--kv", flags->kv, "KV cache: f16, f32 or q8 (half of f16's memory)")
      ->check(CLI::IsMember({"f16", "f32", "q8"}));
  verb->add_option("--task", flags->task, "task mask of the file, or none");
  verb->add_option("--skill", flags->skill,
                   "skill of the file, none, auto (by the prompt), or a blend: ID=0.6,ID=0.4");
  AddNumber(verb, "--skill-blend", &flags->skill_blend, 1e-6, 1e6,
            "with --skill auto: the two nearest by softmax(-E/T), T for example 0.4");
  verb->add_option_function<std::string>(
          "--speculate",
          [flags](const std::string& text) { flags->speculate = ParseSpeculate(text); },
          "tokens guessed ahead: auto, off or N; the answer is the same")
      ->type_name("N");
  verb->add_option("--verify", flags->verify, "hashes: lazy, full or none")
      ->check(CLI::IsMember({"lazy", "full", "none"}));
  verb->add_option("--scout", flags->scout, kScoutHelp);
  AddNumber(verb, "--seed", &flags->seed, uint64_t{0}, UINT64_MAX, "seed of the sampler");
  verb->add_flag("--stats", flags->stats, "statistics on stderr");
}

ModelOptions ModelOptionsOf(const RunFlags& flags) {
  ModelOptions options;
  options.memory = flags.memory;
  options.threads = flags.threads;
  options.context = flags.ctx;
  options.chunk = flags.chunk;
  options.activations = flags.activations == "f32" ? Activations::kF32 : Activations::kInt8;
  options.kv = flags.kv == "f32"   ? KvType::kF32
               : flags.kv == "f16" ? KvType::kF16
               : flags.kv == "q8"  ? KvType::kQ8
                                   : KvType::kAuto;
  options.scout = flags.scout;
  options.task = flags.task;
  options.skill = flags.skill;
  options.skill_blend = flags.skill_blend;
  options.speculate = flags.speculate;
  options.verify = flags.verify == "full"   ? Verify::kFull
                   : flags.verify == "none" ? Verify::kNone
                                            : Verify::kLazy;
  return options;
}

void RefuseAutoSkill(const RunFlags& flags, const char* verb) {
  if (flags.skill != "auto") return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} has no prompt to choose a skill by; name one, or a blend", verb),
              {"", "--skill"});
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
