// `families`: which model families moewe reads from Hugging Face checkpoints, and what each needs.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/verbs.h"
#include "model/families.h"

namespace moewe::cli {
namespace {

using model::FamilyRow;

std::string Router(const FamilyRow& row) {
  if (row.moe.experts_key.empty()) return "none";
  return row.moe.sigmoid ? "sigmoid" : "softmax";
}

int Families(bool json) {
  if (json) {
    nlohmann::ordered_json families = nlohmann::ordered_json::array();
    for (const FamilyRow& row : model::Families()) {
      families.push_back({{"name", row.name},
                          {"moe", !row.moe.experts_key.empty()},
                          {"router", Router(row)},
                          {"shared_expert", row.moe.shared != model::SharedExpert::kNone},
                          {"sliding_window", row.window != model::WindowRule::kNone},
                          {"needs", row.needs}});
    }
    PrintJson({{"families", families}, {"planned", model::PlannedFamilies()}});
    return 0;
  }
  std::string text = fmt::format("{:<14} {:<8} {}\n", "family", "router", "what it needs");
  for (const FamilyRow& row : model::Families()) {
    text += fmt::format("{:<14} {:<8} {}\n", row.name, Router(row), row.needs);
  }
  text +=
      "\nThe family is the model_type of config.json; a .cmf says all of this itself.\nNot yet:";
  for (const std::string_view planned : model::PlannedFamilies())
    text += fmt::format(" {}", planned);
  text += "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

Action AddFamilies(CLI::App& /*verb*/, const Globals& globals) {
  return [&globals] { return Families(globals.json); };
}

}  // namespace moewe::cli
