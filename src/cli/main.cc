// The entry point: parses the command line, runs one verb, turns errors into messages and exit
// codes.
#include <algorithm>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

// Levenshtein distance, for "did you mean".
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

// "; did you mean 'convert'?" or nothing if no candidate is near.
std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = 1 + word.size() / 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance <= best_distance && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

int Report(const Error& error, bool json) {
  if (json) {
    PrintJson({{"error",
                {{"code", ErrorCodeName(error.code())},
                 {"message", error.message()},
                 {"where", error.where().ToString()}}}});
  }
  std::fprintf(stderr, "moewe: %s\n", error.what());
  return ExitCode(error.code());
}

std::string UnknownWordMessage(const CLI::App& app, const std::vector<std::string>& unknown) {
  std::vector<std::string> candidates;
  const std::string& word = unknown.front();
  if (word.starts_with("-")) {
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

int Main(int argc, char** argv) {
  Globals globals;
  CLI::App app{"moewe: run, convert and check sparse mixture-of-experts language models", "moewe"};
  app.set_version_flag("--version", std::string("moewe ") + MOEWE_VERSION);
  app.add_flag("--json", globals.json, "one JSON object on stdout");
  app.add_flag("--quiet", globals.quiet, "no progress");
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.allow_extras();

  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const VerbEntry& entry : Verbs()) {
    CLI::App* verb = app.add_subcommand(entry.name, entry.summary);
    verb->footer(std::string("Example:\n  ") + entry.example);
    verb->fallthrough();
    verb->allow_extras();
    actions.emplace_back(verb, entry.add(*verb, globals));
  }

  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& done) {  // --help, --version
      return app.exit(done);
    } catch (const CLI::ParseError& problem) {
      // Flags that come before the problem may not have been applied yet.
      globals.json = globals.json || std::any_of(argv, argv + argc, [](const char* arg) {
                       return std::string_view(arg) == "--json";
                     });
      throw Error(ErrorCode::kUsage, problem.what());
    }
    const std::vector<std::string> unknown = app.remaining(true);
    if (!unknown.empty()) throw Error(ErrorCode::kUsage, UnknownWordMessage(app, unknown));
    for (auto& [verb, action] : actions) {
      if (verb->parsed()) return action();
    }
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const Error& error) {
    return Report(error, globals.json);
  } catch (const std::bad_alloc&) {
    return Report(Error(ErrorCode::kOutOfBudget, "out of memory"), globals.json);
  } catch (const std::exception& error) {
    return Report(Error(ErrorCode::kInternal, error.what()), globals.json);
  }
}

}  // namespace
}  // namespace moewe::cli

int main(int argc, char** argv) { return moewe::cli::Main(argc, argv); }
