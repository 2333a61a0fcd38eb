// moewe run: one answer.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/model_tokenizer.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "engine/engine.h"
#include "moewe/error.h"
#include "text/bundle_template.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  std::string model, prompt, file, ids, system;
  bool raw = false, greedy = false, ignore_eos = false;
  uint32_t max_tokens = 0;
  std::optional<float> temp, top_p, min_p, repeat_penalty;
  std::optional<uint32_t> top_k;
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;
  std::vector<std::string> logit_bias, stops;
};

// The flag, else the model's generation config, else the fallback.
template <typename T>
T Choose(const std::optional<T>& flag, const nlohmann::ordered_json& defaults, const char* key,
         T fallback) {
  if (flag) return *flag;
  if (defaults.is_object() && defaults.contains(key) && defaults[key].is_number()) {
    return defaults[key].get<T>();
  }
  return fallback;
}

engine::SamplingParams Sampling(const Flags& flags, const nlohmann::ordered_json& bundle) {
  const nlohmann::ordered_json defaults =
      bundle.is_object() ? bundle.value("generation", nlohmann::ordered_json()) : nullptr;
  engine::SamplingParams params;
  params.temperature = Choose(flags.temp, defaults, "temperature", 0.7f);
  params.top_k = Choose(flags.top_k, defaults, "top_k", 0u);
  params.top_p = Choose(flags.top_p, defaults, "top_p", 0.95f);
  params.min_p = Choose(flags.min_p, defaults, "min_p", 0.0f);
  params.repetition_penalty = Choose(flags.repeat_penalty, defaults, "repetition_penalty", 1.0f);
  params.presence_penalty = flags.presence_penalty;
  params.frequency_penalty = flags.frequency_penalty;
  if (flags.greedy) params.temperature = 0.0f;
  params.seed = flags.run.seed ? *flags.run.seed : std::random_device()();
  for (const std::string& text : flags.logit_bias) {
    const size_t equals = text.find('=');
    char* end = nullptr;
    const float bias =
        equals == std::string::npos ? 0.0f : std::strtof(text.c_str() + equals + 1, &end);
    if (end == nullptr || *end != '\0' || end == text.c_str() + equals + 1) {
      throw Error(ErrorCode::kUsage, "--logit-bias takes ID=BIAS, not '" + text + "'");
    }
    for (const auto id : ParseTokenIds(text.substr(0, equals))) {
      params.logit_bias.emplace_back(id, bias);
    }
  }
  return params;
}

std::vector<engine::TokenId> EosIds(const nlohmann::ordered_json& bundle,
                                    const text::Tokenizer* tokenizer) {
  std::vector<engine::TokenId> ids;
  if (bundle.is_object() && bundle.contains("eos_token_ids") &&
      bundle["eos_token_ids"].is_array()) {
    for (const auto& id : bundle["eos_token_ids"]) {
      if (id.is_number_integer()) ids.push_back(id.get<engine::TokenId>());
    }
  }
  if (tokenizer != nullptr) {
    if (const auto id = tokenizer->TokenToId("<|im_end|>")) ids.push_back(*id);
  }
  return ids;
}

std::vector<engine::TokenId> Prompt(const Flags& flags, const OpenModel& open,
                                    const text::Tokenizer* tokenizer) {
  const int sources =
      int{!flags.prompt.empty()} + int{!flags.file.empty()} + int{!flags.ids.empty()};
  if (sources != 1) throw Error(ErrorCode::kUsage, "give exactly one of -p, -f and --ids");
  if (!flags.ids.empty()) return ParseIds(flags.ids, open.model->config().vocab_size);
  if (tokenizer == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the model has no tokenizer; give the prompt with --ids",
                {open.checkpoint->files().front(), "tokenizer"});
  }
  const std::string text = flags.file.empty() ? flags.prompt : ReadTextFile(flags.file);
  const std::string& name = open.checkpoint->files().front();
  const auto chat =
      flags.raw ? nullptr
                : text::TemplateOfBundle(open.checkpoint->chat_bundle(), Json::object(), name);
  if (chat == nullptr) {
    if (!flags.raw) LogInfo("the model has no chat template; completing the text plainly");
    if (!flags.system.empty()) {
      throw Error(ErrorCode::kUsage, "--system needs a chat template", {name, "--system"});
    }
    return tokenizer->Encode(text, /*add_special_tokens=*/true);
  }
  text::ChatRequest request;
  if (!flags.system.empty()) {
    request.messages.push_back({{"role", "system"}, {"content", flags.system}});
  }
  request.messages.push_back({{"role", "user"}, {"content", text}});
  // The template writes the special tokens that it wants, BOS included.
  return tokenizer->Encode(chat->Render(request), /*add_special_tokens=*/false);
}

int Run(const Flags& flags, const Globals& globals) {
  const OpenModel open = OpenForRun(flags.model, flags.run);
  const nlohmann::ordered_json& bundle = open.checkpoint->chat_bundle();
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!open.checkpoint->tokenizer_json().empty()) {
    tokenizer = text::Tokenizer::FromJson(open.checkpoint->tokenizer_json(),
                                          open.checkpoint->files().front());
  }
  engine::Request request;
  request.prompt = Prompt(flags, open, tokenizer.get());
  request.sampling = Sampling(flags, bundle);
  request.max_tokens = flags.max_tokens;
  request.stops = flags.stops;
  if (!flags.ignore_eos) request.eos_ids = EosIds(bundle, tokenizer.get());
  request.cancel = &CatchInterrupts();
  if (request.sampling.temperature != 0.0f && !globals.quiet) {
    LogInfo("seed " + std::to_string(request.sampling.seed));
  }

  if (!globals.json) {
    request.on_text = [](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    };
  }
  engine::Engine engine(open.model.get(), tokenizer.get(),
                        {.context = open.context,
                         .kv_blocks = open.BlocksFor(1),
                         .kv_type = open.kv_type,
                         .chunk = open.chunk});
  const uint64_t seed = request.sampling.seed;
  const engine::Result result = engine.Generate(std::move(request));
  const size_t decoded = result.ids.empty() ? 0 : result.ids.size() - 1;
  if (globals.json && result.error) throw *result.error;
  if (globals.json) {
    PrintJson(
        {{"text", result.text},
         {"ids", result.ids},
         {"finish_reason", engine::FinishReasonName(result.finish_reason)},
         {"usage",
          {{"prompt_tokens", result.prompt_tokens}, {"completion_tokens", result.ids.size()}}},
         {"seed", seed},
         {"timings",
          {{"prefill_seconds", result.prefill_seconds},
           {"decode_seconds", result.decode_seconds}}}});
  } else if (tokenizer != nullptr) {
    std::fputc('\n', stdout);
  } else {
    std::string line;
    for (const auto id : result.ids) line += (line.empty() ? "" : ",") + std::to_string(id);
    std::printf("%s\n", line.c_str());
  }
  if (flags.run.stats) {
    std::fprintf(stderr, "prefill %zu tokens, %.1f tok/s; decode %zu tokens, %.1f tok/s\n",
                 result.prompt_tokens,
                 static_cast<double>(result.prompt_tokens) / result.prefill_seconds, decoded,
                 static_cast<double>(decoded) / std::max(1e-9, result.decode_seconds));
  }
  if (result.error) throw *result.error;
  if (result.finish_reason == engine::FinishReason::kCancelled) {
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
  verb.add_option("-n", flags->max_tokens, "tokens at most (default: until the end)");
  verb.add_option("--system", flags->system, "what the system says before the text");
  verb.add_flag("--greedy", flags->greedy, "always the most likely token");
  verb.add_option("--temp", flags->temp, "temperature; 0 = greedy");
  verb.add_option("--top-k", flags->top_k, "keep the k most likely");
  verb.add_option("--top-p", flags->top_p, "keep the most likely up to probability p");
  verb.add_option("--min-p", flags->min_p, "drop those below p times the most likely");
  verb.add_option("--repeat-penalty", flags->repeat_penalty, "divide seen tokens' logits");
  verb.add_option("--presence-penalty", flags->presence_penalty, "subtract for seen tokens");
  verb.add_option("--frequency-penalty", flags->frequency_penalty, "subtract per occurrence");
  verb.add_option("--logit-bias", flags->logit_bias, "ID=BIAS, repeatable");
  verb.add_option("--stop", flags->stops, "stop before this text, repeatable");
  verb.add_flag("--ignore-eos", flags->ignore_eos, "go on past end tokens");
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
