// `diff`: what changed between two models.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/shown.h"
#include "cli/verbs.h"
#include "convert/diff.h"
#include "formats/checkpoint.h"

namespace moewe::cli {
namespace {

using convert::Difference;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestValue = 60;

std::string Value(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "...";
  return Shown(text);
}

std::string Tensor(const Json& tensor) {
  return fmt::format("{} {}", tensor["dtype"].get<std::string>(), tensor["shape"].dump());
}

// "+ new", "- gone", "~ changed".
void PrintList(const std::vector<Difference>& differences, std::string (*describe)(const Json&)) {
  for (const Difference& difference : differences) {
    const std::string name = Shown(difference.name);
    if (difference.a.is_null()) {
      fmt::print("+ {}  {}\n", name, describe(difference.b));
    } else if (difference.b.is_null()) {
      fmt::print("- {}  {}\n", name, describe(difference.a));
    } else {
      const std::string a = describe(difference.a);
      const std::string b = describe(difference.b);
      fmt::print("~ {}  {}\n", name,
                 a == b ? a + ", other content" : fmt::format("{} -> {}", a, b));
    }
  }
}

Json ToJson(const std::vector<Difference>& differences) {
  Json list = Json::array();
  for (const Difference& difference : differences) {
    list.push_back({{"name", difference.name}, {"a", difference.a}, {"b", difference.b}});
  }
  return list;
}

struct Flags {
  std::string a;
  std::string b;
  std::string scout_a;
  std::string scout_b;
};

int Run(const Flags& flags, const Globals& globals) {
  const auto first = formats::OpenCheckpoint(flags.a, flags.scout_a);
  const auto second = formats::OpenCheckpoint(flags.b, flags.scout_b);
  const convert::DiffResult result = convert::Diff(*first, *second);
  if (globals.json) {
    PrintJson({{"same", result.same()},
               {"header", ToJson(result.header)},
               {"tensors", ToJson(result.tensors)},
               {"same_tensors", result.same_tensors},
               {"masks", ToJson(result.masks)},
               {"skills", ToJson(result.skills)},
               {"tokenizer_differs", result.tokenizer}});
    return 0;
  }
  if (!result.header.empty()) fmt::print("header\n");
  PrintList(result.header, Value);
  fmt::print("tensors: {} same, {} not\n", result.same_tensors, result.tensors.size());
  PrintList(result.tensors, Tensor);
  if (!result.masks.empty()) fmt::print("masks\n");
  PrintList(result.masks, [](const Json&) { return std::string(); });
  if (!result.skills.empty()) fmt::print("skills\n");
  PrintList(result.skills, [](const Json&) { return std::string(); });
  if (result.tokenizer) fmt::print("~ tokenizer\n");
  if (result.same()) fmt::print("the same model\n");
  std::fflush(stdout);
  return 0;
}

}  // namespace

Action AddDiff(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("A", flags->a, "a model file or folder")->required();
  verb.add_option("B", flags->b, "another")->required();
  verb.add_option("--scout", flags->scout_a, "of A, a .smoe: its Scout");
  verb.add_option("--scout-b", flags->scout_b, "of B");
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
