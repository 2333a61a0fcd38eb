#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "cli/number_flags.h"
#include "cli/text_input.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

// "42=-1.5": what is added to the logit of a token.
std::pair<Token, float> ParseLogitBias(const std::string& text) {
  const auto read = [](std::string_view word, auto* value) {
    const char* const end = word.data() + word.size();
    const auto [last, problem] = std::from_chars(word.data(), end, *value);
    return problem == std::errc() && last == end && !word.empty();
  };
  const size_t equals = text.find('=');
  Token id = 0;
  float bias = 0.0f;
  if (equals == std::string::npos || !read(std::string_view(text).substr(0, equals), &id) ||
      id < 0 || !read(std::string_view(text).substr(equals + 1), &bias) || std::isnan(bias) ||
      (std::isinf(bias) && bias > 0.0f)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--logit-bias takes a token id and a number (or -inf: never), as "
                            "42=-1.5, not '{}'",
                            text),
                {"", "--logit-bias"});
  }
  return {id, bias};
}

}  // namespace

void AddSamplingFlags(CLI::App* verb, SamplingFlags* flags) {
  GenerateOptions& options = flags->options;
  AddNumber(verb, "-n", &options.max_tokens, 0u, UINT32_MAX,
            "tokens at most (default: until the end)");
  verb->add_flag("--greedy", flags->greedy, "always the most likely token");
  AddNumber(verb, "--temp", &options.temperature, 0.0, 100.0, "temperature; 0 = greedy");
  AddNumber(verb, "--top-k", &options.top_k, 0u, UINT32_MAX, "keep the k most likely");
  AddNumber(verb, "--top-p", &options.top_p, 0.0, 1.0, "keep the most likely up to probability p");
  AddNumber(verb, "--min-p", &options.min_p, 0.0, 1.0, "drop those below p times the most likely");
  AddNumber(verb, "--repeat-penalty", &options.repetition_penalty, 0.01, 100.0,
            "divide seen tokens' logits");
  AddNumber(verb, "--presence-penalty", &options.presence_penalty, -100.0, 100.0,
            "subtract for seen tokens");
  AddNumber(verb, "--frequency-penalty", &options.frequency_penalty, -100.0, 100.0,
            "subtract per occurrence");
  verb->add_option("--logit-bias", flags->logit_bias, "ID=BIAS, repeatable");
  verb->add_option("--stop", options.stop, "stop before this text, repeatable");
  verb->add_flag("--ignore-eos", options.ignore_eos, "go on past end tokens");
}

GenerateOptions OptionsOf(const SamplingFlags& flags, const RunFlags& run) {
  GenerateOptions options = flags.options;
  options.seed = run.seed;
  if (flags.greedy) options.temperature = 0.0f;
  for (const std::string& text : flags.logit_bias) {
    options.logit_bias.push_back(ParseLogitBias(text));
  }
  for (const std::string& text : options.stop) CheckedText(text, "--stop");
  return options;
}

}  // namespace moewe::cli
