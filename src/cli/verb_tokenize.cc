// `tokenize` and `detokenize`: the text side of a model alone.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/model_tokenizer.h"
#include "cli/text_input.h"
#include "cli/token_batch.h"
#include "cli/verbs.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

// These verbs show what the library's encode() gives, so the file's own truncation and padding
// count.
constexpr auto kLimits = text::Tokenizer::Limits::kApply;

struct TokenizeFlags {
  std::string model;
  std::string prompt;
  std::string file;
  std::string pair;
  std::string batch;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* pair_option = nullptr;
  TokenBatchOptions options;
};

int Tokenize(const TokenizeFlags& flags, bool json) {
  const auto given = [](bool a) { return a ? 1 : 0; };
  const bool has_prompt = flags.prompt_option->count() > 0;
  if (given(has_prompt) + given(!flags.file.empty()) + given(!flags.batch.empty()) != 1) {
    throw Error(ErrorCode::kUsage, "tokenize needs one of -p TEXT, -f FILE and --batch FILE");
  }
  const bool has_pair = flags.pair_option->count() > 0;
  if (has_pair && !flags.batch.empty()) {
    throw Error(ErrorCode::kUsage,
                "--pair goes with one text; lines of a batch have their own 'pair'");
  }
  const auto tokenizer = LoadTokenizer(flags.model, kLimits);
  if (!flags.batch.empty()) {
    return RunTokenBatch(*tokenizer, flags.batch, flags.options);
  }
  const std::string text = has_prompt ? CheckedText(flags.prompt, "-p") : ReadUtf8File(flags.file);
  CheckedText(flags.pair, "--pair");
  const auto ids = has_pair ? tokenizer->EncodePair(text, flags.pair, flags.options.add_special)
                            : tokenizer->Encode(text, flags.options.add_special);
  if (json) {
    nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
    for (const text::TokenId id : ids) tokens.push_back(tokenizer->IdToToken(id).value_or(""));
    PrintJson({{"ids", ids}, {"tokens", tokens}});
    return 0;
  }
  // In the form that --ids takes.
  std::string line;
  for (const text::TokenId id : ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  std::printf("%s\n", line.c_str());
  return 0;
}

struct DetokenizeFlags {
  std::string model;
  std::string ids;
  std::string batch;
  CLI::Option* ids_option = nullptr;
  TokenBatchOptions options;
};

int Detokenize(const DetokenizeFlags& flags, bool json) {
  if ((flags.ids_option->count() > 0) == !flags.batch.empty()) {
    throw Error(ErrorCode::kUsage, "detokenize needs one of --ids 1,2,3 and --batch FILE");
  }
  const auto tokenizer = LoadTokenizer(flags.model, kLimits);
  if (!flags.batch.empty()) {
    return RunTokenBatch(*tokenizer, flags.batch, flags.options);
  }
  const std::string text = tokenizer->Decode(ParseTokenIds(flags.ids), flags.options.skip_special);
  if (json) {
    PrintJson({{"text", text}});
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
  }
  return 0;
}

}  // namespace

Action AddTokenize(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<TokenizeFlags>();
  verb.add_option("MODEL", flags->model, "model, folder with a tokenizer.json, or a tokenizer.json")
      ->required();
  flags->prompt_option = verb.add_option("-p,--prompt", flags->prompt, "the text");
  verb.add_option("-f,--file", flags->file, "the text is in this file (- = stdin)");
  flags->pair_option =
      verb.add_option("--pair", flags->pair, "a second text, for models that take two");
  verb.add_flag("--special", flags->options.add_special, "add special tokens (BOS and the like)");
  verb.add_option("--batch", flags->batch,
                  "JSON lines (- = stdin): {\"text\"} to {\"ids\"}, {\"ids\"} to {\"text\"}");
  verb.add_flag("--skip-special", flags->options.skip_special,
                "leave special tokens out of text (with --batch)");
  return [flags, &globals] { return Tokenize(*flags, globals.json); };
}

Action AddDetokenize(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<DetokenizeFlags>();
  verb.add_option("MODEL", flags->model, "model, folder with a tokenizer.json, or a tokenizer.json")
      ->required();
  flags->ids_option = verb.add_option("--ids", flags->ids, "token ids: 1,2,3");
  verb.add_option("--batch", flags->batch, "JSON lines (- = stdin): {\"ids\"} to {\"text\"}");
  verb.add_flag("--skip-special", flags->options.skip_special, "leave special tokens out");
  verb.add_flag("--special", flags->options.add_special, "add special tokens to {\"text\"} lines");
  return [flags, &globals] { return Detokenize(*flags, globals.json); };
}

}  // namespace moewe::cli
