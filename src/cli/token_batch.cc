#include "cli/token_batch.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "moewe/error.h"
#include "platform/file_io.h"

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

// One line; an error of the tokenizer is an answer, an error of the line is thrown.
ordered_json AnswerOrError(const text::Tokenizer& tokenizer, const std::string& source,
                           const TokenBatchOptions& options, const std::string& path, size_t line) {
  const ordered_json request = ordered_json::parse(source, nullptr, false);
  if (request.is_discarded()) Refuse(path, line, "the line is not JSON");
  try {
    return Answer(tokenizer, request, options, path, line);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kParse) throw;
    return {{"error", {{"code", ErrorCodeName(error.code())}, {"message", error.message()}}}};
  }
}

}  // namespace

void RunTokenBatch(const text::Tokenizer& tokenizer, const std::string& path,
                   const TokenBatchOptions& options) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) ThrowErrno("cannot open", path);
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string source;
  for (size_t line = 1; std::getline(in, source); ++line) {
    if (source.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string answer = AnswerOrError(tokenizer, source, options, path, line).dump() + "\n";
    std::fwrite(answer.data(), 1, answer.size(), stdout);
  }
  if (in.bad()) ThrowErrno("cannot read", path);
  if (std::fflush(stdout) != 0) ThrowErrno("cannot write", "stdout");
}

}  // namespace moewe::cli
