// What --help prints: one line a flag, so that a verb's whole page fits a screen.
#ifndef MOEWE_CLI_HELP_H_
#define MOEWE_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

namespace moewe::cli {

// Lines are at most 100 columns wide.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace moewe::cli

#endif  // MOEWE_CLI_HELP_H_
