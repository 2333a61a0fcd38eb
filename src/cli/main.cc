// The entry point: parses the command line, runs one verb, turns errors into messages and exit
// codes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/log.h"
#include "base/shown.h"
#include "cli/help.h"
#include "cli/standard_streams.h"
#include "cli/suggest.h"
#include "cli/verbs.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::cli {
namespace {

int Report(const Error& error, bool json) {
  if (json) {
    PrintJson({{"error", ErrorJson(error)}});
  }
  std::fprintf(stderr, "moewe: %s\n", Shown(error.what()).c_str());
  return ExitCode(error.code());
}

std::string UnknownWordMessage(const CLI::App& app, const std::vector<std::string>& unknown) {
  std::vector<std::string> candidates;
  std::string word = unknown.front();
  if (word.starts_with("-")) {
    word = word.substr(0, word.find('='));
    const auto chosen = app.get_subcommands();
    const CLI::App& scope = chosen.empty() ? app : *chosen.front();
    for (const CLI::App* owner : {&scope, &app}) {
      for (const CLI::Option* option : owner->get_options()) {
        for (const std::string& name : option->get_lnames()) candidates.push_back("--" + name);
      }
    }
    return "unknown flag '" + word + "'" + Suggestion(word, candidates);
  }
  for (const VerbEntry& verb : Verbs()) candidates.emplace_back(verb.name);
  return (app.get_subcommands().empty() ? "unknown verb '" : "unexpected argument '") + word + "'" +
         (app.get_subcommands().empty() ? Suggestion(word, candidates) : "");
}

// What the standard library says of files.
Error FileError(const std::system_error& error) {
  Where where;
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    where.file = file->path1().string();
  }
  return Error(ErrorCode::kIo, error.code().message(), where);
}

int Main(int argc, char** argv) {
  Globals globals;
  // An error of the command line itself comes before flags are applied.
  const bool json_asked = std::any_of(
      argv, argv + argc, [](const char* arg) { return arg == std::string_view("--json"); });
  bool parsed = false;
  const auto report = [&](const Error& error) {
    return Report(error, globals.json || (json_asked && !parsed));
  };
  CLI::App app{"moewe: run, convert and check sparse mixture-of-experts language models", "moewe"};
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", std::string("moewe ") + MOEWE_VERSION);
  app.add_flag("--json", globals.json, "one JSON object on stdout");
  app.add_flag("--quiet", globals.quiet, "no progress, notes and warnings");
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.allow_extras();

  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const VerbEntry& entry : Verbs()) {
    CLI::App* verb = app.add_subcommand(entry.name, entry.summary);
    verb->fallthrough();
    verb->allow_extras();
    actions.emplace_back(verb, entry.add(*verb, globals));
    // Set last: verbs of a verb would have it, too.
    verb->footer(std::string("Example: ") + entry.example);
  }

  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& done) {  // --help, --version
      const int code = app.exit(done);
      std::cout.flush();
      if (!std::cout) throw Error(ErrorCode::kIo, "cannot write", {"stdout", ""});
      return code;
    } catch (const CLI::ParseError& problem) {
      // A flag that was mistyped explains what is missing now.
      const std::vector<std::string> unknown = app.remaining(true);
      const bool flag = !unknown.empty() && unknown.front().starts_with("-");
      throw Error(ErrorCode::kUsage, flag ? UnknownWordMessage(app, unknown) : problem.what());
    }
    const std::vector<std::string> unknown = app.remaining(true);
    if (!unknown.empty()) throw Error(ErrorCode::kUsage, UnknownWordMessage(app, unknown));
    parsed = true;
    if (globals.quiet) SetLogLevel(LogLevel::kQuiet);
    for (auto& [verb, action] : actions) {
      if (!verb->parsed()) continue;
      const int code = action();
      FinishStdout();
      return code;
    }
    std::fputs(app.help().c_str(), stdout);
    FinishStdout();
    return 0;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorCode::kOutOfBudget, "out of memory"));
  } catch (const std::system_error& error) {  // files through the standard library
    return report(FileError(error));
  } catch (const std::exception& error) {
    return report(Error(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace
}  // namespace moewe::cli

int main(int argc, char** argv) {
  moewe::cli::HoldStandardStreams();
  moewe::IgnoreFileSizeSignal();
  return moewe::cli::Main(argc, argv);
}
