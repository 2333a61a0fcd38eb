// The flags of every verb that lets a model speak.
#ifndef MOEWE_CLI_SAMPLING_FLAGS_H_
#define MOEWE_CLI_SAMPLING_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/run_flags.h"
#include "moewe/moewe.h"

namespace moewe::cli {

struct SamplingFlags {
  GenerateOptions options;
  bool greedy = false;
  std::vector<std::string> logit_bias;  // ID=BIAS
};

// Declares -n, --temp, --top-k, ..., --stop, --greedy, --ignore-eos on `verb`. `flags` must
// live until the verb has run.
void AddSamplingFlags(CLI::App* verb, SamplingFlags* flags);

// What they ask for, with the seed of `run`. Throws Error{kUsage} for a bias that is not ID=BIAS.
GenerateOptions OptionsOf(const SamplingFlags& flags, const RunFlags& run);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_SAMPLING_FLAGS_H_
