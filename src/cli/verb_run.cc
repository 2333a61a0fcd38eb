// moewe run: one answer.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/answer_output.h"
#include "cli/interrupt.h"
#include "cli/model_tokenizer.h"
#include "cli/run_flags.h"
#include "cli/sampling_flags.h"
#include "cli/verbs.h"
#include "moewe/error.h"
#include "moewe/moewe.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  SamplingFlags sampling;
  std::string model, prompt, file, ids, system;
  bool raw = false;
};

std::vector<Token> Prompt(const Flags& flags, const Model& model) {
  if (!flags.ids.empty()) return ParseIds(flags.ids, model.info().vocab_size);
  const ModelInfo& info = model.info();
  const std::string text = flags.file.empty() ? flags.prompt : ReadTextFile(flags.file);
  if (!info.has_tokenizer) return model.Tokenize(text);  // throws, saying why there is none
  if (flags.raw || !info.has_chat_template) {
    if (!flags.raw) LogInfo("the model has no chat template; completing the text plainly");
    if (!flags.system.empty()) {
      throw Error(ErrorCode::kUsage, "--system needs a chat template", {info.file, "--system"});
    }
    return model.Tokenize(text);
  }
  std::vector<Message> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", text});
  return model.Prompt(messages);
}

int Run(const Flags& flags, const Globals& globals) {
  const int sources =
      int{!flags.prompt.empty()} + int{!flags.file.empty()} + int{!flags.ids.empty()};
  if (sources != 1) throw Error(ErrorCode::kUsage, "give exactly one of -p, -f and --ids");
  GenerateOptions options = OptionsOf(flags.sampling, flags.run);
  const Model model = Model::Open(flags.model, ModelOptionsOf(flags.run));
  const std::vector<Token> prompt = Prompt(flags, model);
  const bool shows_text = !globals.json && model.info().has_tokenizer;
  options.cancel = &CatchInterrupts();
  OnText on_text;
  if (shows_text) on_text = PrintText;
  const Answer answer = model.Generate(prompt, options, on_text);
  if (answer.temperature != 0.0f && !globals.quiet) {
    LogInfo("seed " + std::to_string(answer.seed));
  }
  if (globals.json) {
    nlohmann::ordered_json report = AnswerJson(answer);
    report["cache"]["kv_bytes"] = model.info().kv_bytes;
    PrintJson(report);
  } else if (shows_text) {
    PrintText("\n");
  } else {
    PrintText(JoinIds(answer.ids) + "\n");
  }
  if (flags.run.stats) PrintStats(answer);
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
  verb.add_option("-p,--prompt", flags->prompt, "the text");
  verb.add_option("-f,--file", flags->file, "a file with the text; - is stdin");
  verb.add_option("--ids", flags->ids, "the prompt as token ids");
  verb.add_flag("--raw", flags->raw, "complete the text plainly, without a chat template");
  verb.add_option("--system", flags->system, "what the system says before the text");
  AddSamplingFlags(&verb, &flags->sampling);
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
