#include "cli/prompt_flags.h"

#include "base/log.h"
#include "cli/run_flags.h"
#include "cli/text_input.h"
#include "moewe/error.h"

namespace moewe::cli {

void AddPromptFlags(CLI::App* verb, PromptFlags* flags) {
  flags->prompt_option = verb->add_option("-p,--prompt", flags->prompt, "the text");
  flags->file_option =
      verb->add_option("-f,--file", flags->file, "a file with the text; - is stdin");
  flags->ids_option = verb->add_option("--ids", flags->ids, "the prompt as token ids");
  verb->add_flag("--raw", flags->raw, "complete the text plainly, without a chat template");
  verb->add_option("--system", flags->system, "what the system says before the text");
}

size_t PromptFlags::sources() const {
  return prompt_option->count() + file_option->count() + ids_option->count();
}

void RequireOnePrompt(const PromptFlags& flags) {
  if (flags.sources() == 1) return;
  throw Error(ErrorCode::kUsage, "the prompt is given with exactly one of -p, -f and --ids");
}

std::vector<Token> PromptTokens(const PromptFlags& flags, const Model& model) {
  if (flags.ids_option->count() > 0) return ParseIds(flags.ids, model.info().vocab_size);
  const ModelInfo& info = model.info();
  const std::string text =
      flags.file_option->count() > 0 ? ReadUtf8File(flags.file) : CheckedText(flags.prompt, "-p");
  if (!info.has_tokenizer) return model.Tokenize(text);  // throws, saying why there is none
  if (flags.raw || !info.has_chat_template) {
    if (!flags.raw) LogInfo("the model has no chat template; completing the text plainly");
    if (!flags.system.empty()) {
      throw Error(ErrorCode::kUsage, "--system needs a chat template", {info.file, "--system"});
    }
    return model.Tokenize(text);
  }
  std::vector<Message> messages;
  if (!flags.system.empty()) messages.push_back({"system", CheckedText(flags.system, "--system")});
  messages.push_back({"user", text});
  return model.Prompt(messages);
}

}  // namespace moewe::cli
