// What the verbs of the text side share: a model's tokenizer, texts from files, ids from flags.
#ifndef MOEWE_CLI_MODEL_TOKENIZER_H_
#define MOEWE_CLI_MODEL_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace moewe::cli {

// The tokenizer of MODEL: a tokenizer.json itself, a folder with one, or any checkpoint that
// carries one. Weights are not read. Throws Error{kNotFound, kParse, ...}.
std::unique_ptr<text::Tokenizer> LoadTokenizer(
    const std::string& model, text::Tokenizer::Limits limits = text::Tokenizer::Limits::kIgnore);

// "1,2,3" (blanks allowed, empty = no ids). Throws Error{kUsage}.
std::vector<text::TokenId> ParseTokenIds(std::string_view list);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_MODEL_TOKENIZER_H_
