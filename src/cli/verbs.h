// The verbs of the program. One file a verb: verb_info.cc defines AddInfo, and so on; verbs.cc
// lists them.
#ifndef MOEWE_CLI_VERBS_H_
#define MOEWE_CLI_VERBS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "moewe/error.h"

namespace moewe::cli {

// Flags that every verb understands.
struct Globals {
  bool json = false;
  bool quiet = false;
};

// A verb's Add function declares its flags on `verb` and returns what to do once they are parsed;
// the returned function's value is the process exit code. Errors are thrown (moewe::Error) and
// printed by main().
using Action = std::function<int()>;
using AddVerb = Action (*)(CLI::App& verb, const Globals& globals);

struct VerbEntry {
  const char* name;
  const char* summary;
  const char* example;
  AddVerb add;
};

Action AddBench(CLI::App& verb, const Globals& globals);
Action AddChat(CLI::App& verb, const Globals& globals);
Action AddConvert(CLI::App& verb, const Globals& globals);
Action AddRequant(CLI::App& verb, const Globals& globals);
Action AddCompact(CLI::App& verb, const Globals& globals);
Action AddShard(CLI::App& verb, const Globals& globals);
Action AddDiff(CLI::App& verb, const Globals& globals);
Action AddInfo(CLI::App& verb, const Globals& globals);
Action AddVerify(CLI::App& verb, const Globals& globals);
Action AddSkill(CLI::App& verb, const Globals& globals);
Action AddSign(CLI::App& verb, const Globals& globals);
Action AddDequant(CLI::App& verb, const Globals& globals);
Action AddFamilies(CLI::App& verb, const Globals& globals);
Action AddMask(CLI::App& verb, const Globals& globals);
Action AddExperts(CLI::App& verb, const Globals& globals);
Action AddLogits(CLI::App& verb, const Globals& globals);
Action AddPlan(CLI::App& verb, const Globals& globals);
Action AddPpl(CLI::App& verb, const Globals& globals);
Action AddRun(CLI::App& verb, const Globals& globals);
Action AddTokenize(CLI::App& verb, const Globals& globals);
Action AddDetokenize(CLI::App& verb, const Globals& globals);
Action AddVault(CLI::App& verb, const Globals& globals);
Action AddTemplate(CLI::App& verb, const Globals& globals);

// All verbs, in the order that --help shows them.
std::span<const VerbEntry> Verbs();

inline constexpr char kScoutHelp[] = "the Scout of a .smoe (default: <stem>.scout.safetensors)";

// {"code", "message", "where"} of an error, as --json reports it under "error".
nlohmann::ordered_json ErrorJson(const Error& error);

// One JSON object and a newline to stdout.
void PrintJson(const nlohmann::ordered_json& object);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_VERBS_H_
