// moewe verify: every hash, bound, alignment and rule of a model file.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/verbs.h"
#include "formats/verify.h"

namespace moewe::cli {
namespace {

using Json = nlohmann::ordered_json;

int Run(const std::string& path, const Globals& globals) {
  const formats::VerifyReport report = formats::Verify(path, [](uint64_t, uint64_t) {});
  if (globals.json) {
    Json problems = Json::array();
    for (const formats::VerifyProblem& problem : report.problems) {
      problems.push_back({{"code", ErrorCodeName(problem.code)},
                          {"where", problem.where.ToString()},
                          {"message", problem.message}});
    }
    PrintJson({{"ok", report.ok()},
               {"problems", std::move(problems)},
               {"unprotected", report.unprotected}});
  } else {
    for (const formats::VerifyProblem& problem : report.problems) {
      std::printf("%s: %s (%s)\n", std::string(ErrorCodeName(problem.code)).c_str(),
                  problem.message.c_str(), problem.where.ToString().c_str());
    }
    for (const std::string& item : report.unprotected) {
      std::printf("not protected: %s\n", item.c_str());
    }
    std::printf(
        "%s: %s\n", path.c_str(),
        report.ok() ? "ok" : (std::to_string(report.problems.size()) + " problem(s)").c_str());
  }
  return report.ok() ? 0 : ExitCode(report.problems.front().code);
}

}  // namespace

Action AddVerify(CLI::App& verb, const Globals& globals) {
  auto path = std::make_shared<std::string>();
  verb.add_option("FILE", *path, "a .cmf file, a safetensors file or a Hugging Face folder")
      ->required();
  return [path, &globals] { return Run(*path, globals); };
}

}  // namespace moewe::cli
