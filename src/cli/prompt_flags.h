// The prompt that a verb takes: -p, -f or --ids, as the model reads it.
#ifndef MOEWE_CLI_PROMPT_FLAGS_H_
#define MOEWE_CLI_PROMPT_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "moewe/moewe.h"

namespace moewe::cli {

struct PromptFlags {
  std::string prompt, file, ids, system;
  bool raw = false;

  // Which are given: an empty text is one, too.
  CLI::Option *prompt_option = nullptr, *file_option = nullptr, *ids_option = nullptr;

  // How many of -p, -f and --ids there are.
  size_t sources() const;
};

// Declares -p, -f, --ids, --raw and --system. `flags` must live until the verb has run.
void AddPromptFlags(CLI::App* verb, PromptFlags* flags);

// Throws Error{kUsage} unless there is exactly one source.
void RequireOnePrompt(const PromptFlags& flags);

// Its tokens: ids as they are; text through the chat template, or plainly with --raw and where the
// model has no template, which a line then says.
std::vector<Token> PromptTokens(const PromptFlags& flags, const Model& model);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_PROMPT_FLAGS_H_
