// moewe run: one answer.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/answer_output.h"
#include "cli/interrupt.h"
#include "cli/prompt_flags.h"
#include "cli/run_flags.h"
#include "cli/sampling_flags.h"
#include "cli/stream_report.h"
#include "cli/verbs.h"
#include "moewe/error.h"
#include "moewe/moewe.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  SamplingFlags sampling;
  PromptFlags prompt;
  std::string model;
};

int Run(const Flags& flags, const Globals& globals) {
  RequireOnePrompt(flags.prompt);
  GenerateOptions options = OptionsOf(flags.sampling, flags.run);
  const Model model = Model::Open(flags.model, ModelOptionsOf(flags.run));
  const std::vector<Token> prompt = PromptTokens(flags.prompt, model);
  const bool shows_text = !globals.json && model.info().has_tokenizer;
  options.cancel = &CatchInterrupts();
  OnText on_text;
  if (shows_text) on_text = PrintText;
  const Answer answer = model.Generate(prompt, options, on_text);
  if (!globals.quiet) {
    if (!answer.skill_energies.empty()) LogInfo(SkillChosen(answer));
    if (answer.temperature != 0.0f) LogInfo("seed " + std::to_string(answer.seed));
  }
  const std::optional<StreamingStats> streaming = model.streaming();
  const double seconds = answer.prefill_seconds + answer.decode_seconds;
  if (globals.json) {
    nlohmann::ordered_json report = AnswerJson(answer);
    report["cache"]["kv_bytes"] = model.info().kv_bytes;
    if (streaming) report["streaming"] = StreamJson(*streaming, seconds);
    PrintJson(report);
  } else if (shows_text) {
    PrintText("\n");
  } else {
    PrintText(JoinIds(answer.ids) + "\n");
  }
  if (flags.run.stats) {
    PrintStats(answer);
    if (streaming) PrintStream(*streaming, seconds);
  }
  if (answer.finish_reason == FinishReason::kCancelled) {
    // The report is the one object of --json.
    if (globals.json) return ExitCode(ErrorCode::kInterrupted);
    throw Error(ErrorCode::kInterrupted, "stopped");
  }
  return 0;
}

}  // namespace

Action AddRun(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("MODEL", flags->model, "model file or folder")->required();
  AddPromptFlags(&verb, &flags->prompt);
  AddSamplingFlags(&verb, &flags->sampling);
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
