#include "cli/sampling_flags.h"

#include <cstdlib>

#include "cli/model_tokenizer.h"
#include "moewe/error.h"

namespace moewe::cli {

void AddSamplingFlags(CLI::App* verb, SamplingFlags* flags) {
  GenerateOptions& options = flags->options;
  verb->add_option("-n", options.max_tokens, "tokens at most (default: until the end)");
  verb->add_flag("--greedy", flags->greedy, "always the most likely token");
  verb->add_option("--temp", options.temperature, "temperature; 0 = greedy");
  verb->add_option("--top-k", options.top_k, "keep the k most likely");
  verb->add_option("--top-p", options.top_p, "keep the most likely up to probability p");
  verb->add_option("--min-p", options.min_p, "drop those below p times the most likely");
  verb->add_option("--repeat-penalty", options.repetition_penalty, "divide seen tokens' logits");
  verb->add_option("--presence-penalty", options.presence_penalty, "subtract for seen tokens");
  verb->add_option("--frequency-penalty", options.frequency_penalty, "subtract per occurrence");
  verb->add_option("--logit-bias", flags->logit_bias, "ID=BIAS, repeatable");
  verb->add_option("--stop", options.stop, "stop before this text, repeatable");
  verb->add_flag("--ignore-eos", options.ignore_eos, "go on past end tokens");
}

GenerateOptions OptionsOf(const SamplingFlags& flags, const RunFlags& run) {
  GenerateOptions options = flags.options;
  options.seed = run.seed;
  if (flags.greedy) options.temperature = 0.0f;
  for (const std::string& text : flags.logit_bias) {
    const size_t equals = text.find('=');
    char* end = nullptr;
    const float bias =
        equals == std::string::npos ? 0.0f : std::strtof(text.c_str() + equals + 1, &end);
    if (end == nullptr || *end != '\0' || end == text.c_str() + equals + 1) {
      throw Error(ErrorCode::kUsage, "--logit-bias takes ID=BIAS, not '" + text + "'");
    }
    for (const Token id : ParseTokenIds(text.substr(0, equals))) {
      options.logit_bias.emplace_back(id, bias);
    }
  }
  return options;
}

}  // namespace moewe::cli
