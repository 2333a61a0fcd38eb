// moewe verify: every hash, bound, alignment and rule of a model file.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/progress.h"
#include "base/shown.h"
#include "cli/number_flags.h"
#include "cli/verbs.h"
#include "formats/verify.h"

namespace moewe::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string path;
  std::string base;
  std::string scout;
  int threads = 0;
};

int Run(const Flags& flags, const Globals& globals) {
  ThreadPool threads(flags.threads);
  std::optional<Progress> bar;
  const formats::VerifyReport report =
      formats::Verify(flags.path, {.base = flags.base, .scout = flags.scout}, &threads,
                      [&](uint64_t done, uint64_t total) {
                        if (!bar) bar.emplace("verify", total, globals.quiet ? nullptr : stderr);
                        bar->Update(done);
                      });
  bar.reset();
  if (globals.json) {
    Json problems = Json::array();
    for (const formats::VerifyProblem& problem : report.problems) {
      problems.push_back({{"code", ErrorCodeName(problem.code)},
                          {"where", problem.where.ToString()},
                          {"message", problem.message}});
    }
    Json result = {{"ok", report.ok()},
                   {"problems", std::move(problems)},
                   {"warnings", report.warnings},
                   {"unprotected", report.unprotected}};
    if (!report.signed_by.empty()) result["signed_by"] = report.signed_by;
    if (report.shard) {
      result["shard"] = {{"no", report.shard->no}, {"count", report.shard->count}};
      result["siblings_checked"] = false;
    }
    PrintJson(result);
  } else {
    for (const formats::VerifyProblem& problem : report.problems) {
      std::printf("%s: %s (%s)\n", std::string(ErrorCodeName(problem.code)).c_str(),
                  Shown(problem.message).c_str(), Shown(problem.where.ToString()).c_str());
    }
    for (const std::string& item : report.warnings) {
      std::printf("warning: %s\n", Shown(item).c_str());
    }
    for (const std::string& item : report.unprotected) {
      std::printf("not protected: %s\n", Shown(item).c_str());
    }
    if (report.shard) {
      std::printf("shard %u of %u, checked alone; its siblings were not checked\n",
                  report.shard->no, report.shard->count);
    }
    if (!report.signed_by.empty()) std::printf("signed by %s\n", report.signed_by.c_str());
    std::printf(
        "%s: %s\n", flags.path.c_str(),
        report.ok() ? "ok" : (std::to_string(report.problems.size()) + " problem(s)").c_str());
  }
  return report.ok() ? 0 : ExitCode(report.problems.front().code);
}

}  // namespace

Action AddVerify(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->path,
                  "a .cmf, a .smoe, a safetensors file or a Hugging Face folder")
      ->required();
  verb.add_option("--base", flags->base, "the file that a standalone skill was cut against");
  verb.add_option("--scout", flags->scout, kScoutHelp);
  AddThreads(&verb, &flags->threads);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
