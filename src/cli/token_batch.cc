#include "cli/token_batch.h"

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/bytes_of.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void Refuse(const std::string& path, size_t line, const std::string& problem) {
  throw Error(ErrorCode::kParse, problem, {.file = path, .field = "line " + std::to_string(line)});
}

std::vector<text::TokenId> IdsOf(const ordered_json& list, const std::string& path, size_t line) {
  if (!list.is_array()) Refuse(path, line, "'ids' must be a list of numbers");
  std::vector<text::TokenId> ids;
  ids.reserve(list.size());
  for (const ordered_json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<text::TokenId>::max()) {
      Refuse(path, line, "'ids' must be a list of token ids, but has " + id.dump());
    }
    ids.push_back(id.get<text::TokenId>());
  }
  return ids;
}

ordered_json Answer(const text::Tokenizer& tokenizer, const ordered_json& request,
                    const TokenBatchOptions& options, const std::string& path, size_t line) {
  if (!request.is_object()) Refuse(path, line, "a line must be a JSON object");
  if (const auto text = request.find("text"); text != request.end()) {
    if (!text->is_string()) Refuse(path, line, "'text' must be a string");
    const std::string& first = text->get_ref<const std::string&>();
    const auto pair = request.find("pair");
    if (pair != request.end() && pair->is_string()) {
      const std::string& second = pair->get_ref<const std::string&>();
      return {{"ids", tokenizer.EncodePair(first, second, options.add_special)}};
    }
    return {{"ids", tokenizer.Encode(first, options.add_special)}};
  }
  if (const auto ids = request.find("ids"); ids != request.end()) {
    return {{"text", tokenizer.Decode(IdsOf(*ids, path, line), options.skip_special)}};
  }
  Refuse(path, line, "a line needs 'text' or 'ids'");
}

ordered_json ParsedLine(const std::string& source, const std::string& path, size_t line) {
  try {
    return ParseJson(BytesOf(source), path, "", 0,
                     {.duplicate_keys = JsonOptions::DuplicateKeys::kLastWins});
  } catch (const Error&) {
    Refuse(path, line, "the line is not JSON");
  }
}

}  // namespace

int RunTokenBatch(const text::Tokenizer& tokenizer, const std::string& path,
                  const TokenBatchOptions& options) {
  TextLines lines(path);
  int exit_code = 0;
  for (std::string source; lines.Next(&source);) {
    const size_t line = lines.number();
    ordered_json answer;
    try {
      answer = Answer(tokenizer, ParsedLine(source, path, line), options, path, line);
    } catch (const Error& error) {
      answer = {{"error", ErrorJson(error)}};
      // What the tokenizer refuses is an answer like another.
      if (error.code() == ErrorCode::kParse && exit_code == 0) {
        exit_code = ExitCode(error.code());
        LogWarning(error.what());
      }
    }
    const std::string text = answer.dump() + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return exit_code;
}

}  // namespace moewe::cli
