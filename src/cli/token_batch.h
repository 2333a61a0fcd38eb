// `--batch` of tokenize and detokenize: JSON lines in, JSON lines out, one for one.
#ifndef MOEWE_CLI_TOKEN_BATCH_H_
#define MOEWE_CLI_TOKEN_BATCH_H_

#include <string>

#include "text/tokenizer.h"

namespace moewe::cli {

struct TokenBatchOptions {
  bool add_special = false;   // of {"text"} lines
  bool skip_special = false;  // of {"ids"} lines
};

// Lines of `path` ("-" = stdin): {"text": …} (and "pair": … for two texts) becomes {"ids": […]},
// {"ids": […]} becomes {"text": …}; other keys are ignored, "text" wins. What the tokenizer refuses
// becomes {"error": {"code", "message", "where"}} in its place; so does what is no such line, and
// the result is then that error's exit code, else 0. Throws Error{kNotFound, kIo, kBounds}.
int RunTokenBatch(const text::Tokenizer& tokenizer, const std::string& path,
                  const TokenBatchOptions& options);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_TOKEN_BATCH_H_
