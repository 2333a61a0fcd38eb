// moewe skill: the skills of a CMF file, listed, chosen between, explained; other sub-verbs have
// their own files.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shown.h"
#include "cli/change_file.h"
#include "cli/number_flags.h"
#include "cli/prompt_flags.h"
#include "cli/run_flags.h"
#include "cli/skill_report.h"
#include "cli/skill_verbs.h"
#include "formats/cmf/cmf_file.h"
#include "model/skill_choice.h"
#include "moewe/error.h"
#include "moewe/moewe.h"

namespace moewe::cli {
namespace {

using formats::CmfFile;
using formats::cmf::SkillRecord;

struct RouteFlags {
  RunFlags run;
  PromptFlags prompt;
  std::string model;
};

int List(const std::string& path, const Globals& globals) {
  const std::unique_ptr<CmfFile> file = OpenCmf(path);
  Json list = Json::array();
  for (const SkillRecord& skill : file->contents().header.skills) {
    list.push_back(SkillJson(*file, skill));
  }
  if (globals.json) {
    PrintJson({{"standalone", file->contents().header.standalone_skill}, {"skills", list}});
    return 0;
  }
  if (list.empty()) fmt::print("no skills\n");
  for (const Json& skill : list) fmt::print("{}\n", SkillLine(skill));
  return 0;
}

// The energies of the prompt, ascending.
std::vector<SkillEnergy> Rank(const RouteFlags& flags) {
  RequireOnePrompt(flags.prompt);
  ModelOptions options = ModelOptionsOf(flags.run);
  options.skill = "auto";
  const Model model = Model::Open(flags.model, options);
  return model.RankSkills(PromptTokens(flags.prompt, model));
}

// What --skill auto makes of them.
model::SkillChoice Choose(const std::vector<SkillEnergy>& energies, double blend) {
  std::vector<model::SkillEnergy> ranked;
  for (const SkillEnergy& skill : energies) {
    ranked.push_back({skill.id, skill.energy, skill.phi_layer});
  }
  return model::ChooseSkills(ranked, blend == 0.0 ? std::nullopt : std::optional<double>(blend));
}

Json ChoiceJson(const std::vector<SkillEnergy>& energies, double blend) {
  Json json = {{"chosen", energies.front().id}, {"energies", EnergiesJson(energies)}};
  if (blend != 0.0) {
    json["blend"] = Json::array();
    for (const model::WeightedSkill& skill : Choose(energies, blend)) {
      json["blend"].push_back({{"id", skill.id}, {"weight", skill.weight}});
    }
  }
  return json;
}

int Route(const RouteFlags& flags, const Globals& globals) {
  const std::vector<SkillEnergy> energies = Rank(flags);
  if (globals.json) {
    PrintJson(ChoiceJson(energies, flags.run.skill_blend));
    return 0;
  }
  fmt::print("{}\n", Shown(model::SkillChoiceText(Choose(energies, flags.run.skill_blend))));
  for (const SkillEnergy& skill : energies) {
    fmt::print("  {:<16} E {:.6f}  (layer {})\n", Shown(skill.id), skill.energy, skill.phi_layer);
  }
  return 0;
}

void PrintExplanation(const CmfFile& file, const Json& skill, const std::vector<SkillEnergy>& all,
                      const model::SkillChoice& chosen) {
  const std::string id = skill["id"].get<std::string>();
  fmt::print("{}{}\n", Shown(id),
             skill["name"].is_string() ? " · " + Shown(skill["name"].get<std::string>()) : "");
  const auto energy = std::find_if(all.begin(), all.end(),
                                   [&](const SkillEnergy& other) { return other.id == id; });
  const Json& selection = skill["selection"];
  if (selection.is_null()) {
    fmt::print("  routing   never chosen by a prompt: it has no selection\n");
  } else {
    const auto weight = std::find_if(chosen.begin(), chosen.end(),
                                     [&](const model::WeightedSkill& one) { return one.id == id; });
    std::string verdict;
    if (energy != all.end()) verdict = fmt::format("E {:.6f}, ", energy->energy);
    if (weight != chosen.end()) {
      verdict +=
          chosen.size() == 1 ? "chosen, " : fmt::format("{:.3g} of the blend, ", weight->weight);
    }
    fmt::print("  routing   {}from the state after layer {} in {} directions\n", verdict,
               selection["phi_layer"].get<uint32_t>(), selection["rank"].get<uint32_t>());
  }
  const Json& task =
      skill["input_mask_task"].is_string() ? skill["input_mask_task"] : skill["task"];
  fmt::print("  mask      {}\n",
             task.is_string() ? Shown(task.get<std::string>()) : "none of its own");
  fmt::print("  quality   {}\n", Shown(QualityText(skill["quality"])));
  const SkillRecord* record = formats::cmf::FindSkill(file.contents().header.skills, id);
  PrintSkillTensors(SkillTensorList(file, *record));
}

int Explain(const RouteFlags& flags, const Globals& globals) {
  const std::unique_ptr<CmfFile> file = OpenCmf(flags.model);
  std::vector<SkillEnergy> energies;
  if (flags.prompt.sources() != 0) energies = Rank(flags);
  const model::SkillChoice chosen = Choose(energies, flags.run.skill_blend);
  Json skills = Json::array();
  for (const SkillRecord& record : file->contents().header.skills) {
    skills.push_back(SkillJson(*file, record));
  }
  // The nearest first, those without an energy last.
  std::stable_sort(skills.begin(), skills.end(), [&](const Json& a, const Json& b) {
    const auto place = [&](const Json& skill) {
      const auto& id = skill["id"].get_ref<const std::string&>();
      return std::find_if(energies.begin(), energies.end(),
                          [&](const SkillEnergy& one) { return one.id == id; }) -
             energies.begin();
    };
    return place(a) < place(b);
  });
  if (globals.json) {
    Json json = energies.empty() ? Json{{"chosen", nullptr}, {"energies", Json::array()}}
                                 : ChoiceJson(energies, flags.run.skill_blend);
    for (Json& skill : skills) {
      const SkillRecord* record =
          formats::cmf::FindSkill(file->contents().header.skills, skill["id"].get<std::string>());
      skill["overlays"] = SkillTensorList(*file, *record);
    }
    json["skills"] = std::move(skills);
    PrintJson(json);
    return 0;
  }
  if (skills.empty()) fmt::print("no skills\n");
  for (const Json& skill : skills) PrintExplanation(*file, skill, energies, chosen);
  return 0;
}

Action AddRouted(CLI::App& verb, const Globals& globals,
                 int (*act)(const RouteFlags&, const Globals&)) {
  auto flags = std::make_shared<RouteFlags>();
  verb.add_option("MODEL", flags->model, "a .cmf file")->required();
  AddPromptFlags(&verb, &flags->prompt);
  AddNumber(&verb, "--skill-blend", &flags->run.skill_blend, 1e-6, 1e6,
            "blend the two nearest by softmax(-E/T), T for example 0.4");
  verb.add_option("--memory", flags->run.memory, "budget: 8GiB, 500MB, auto, all, min");
  AddThreads(&verb, &flags->run.threads);
  AddNumber(&verb, "--ctx", &flags->run.ctx, 1u, UINT32_MAX, "positions that the prompt may have");
  return [=, &globals] { return act(*flags, globals); };
}

struct SubVerb {
  const char* name;
  const char* summary;
  AddVerb add;
  const char* example = "";
};

constexpr SubVerb kSubVerbs[] = {
    {"list", "the skills of a file", AddSkillList, "list m.cmf"},
    {"route", "which skill a prompt is nearest to", AddSkillRoute, "route m.cmf -p 'def f(x):'"},
    {"explain", "what each skill changes, and how near a prompt is to it", AddSkillExplain,
     "explain m.cmf -p Hi"},
    {"add", "graft a skill from a fine-tuned checkpoint", AddSkillAdd,
     "add m.cmf --donor tuned/ --id code --texts code.txt"},
    {"remove", "take a skill out of a file, in place", AddSkillRemove, "remove m.cmf code"},
    {"export", "what a specialist changed, as a small file", AddSkillExport,
     "export tuned.cmf code.cmf --base m.cmf"},
    {"apply", "a standalone skill and its base as one model", AddSkillApply,
     "apply m.cmf code.cmf specialist.cmf"},
};

}  // namespace

Action AddSkillList(CLI::App& verb, const Globals& globals) {
  auto file = std::make_shared<std::string>();
  verb.add_option("FILE", *file, "a .cmf file")->required();
  return [file, &globals] { return List(*file, globals); };
}

Action AddSkillRoute(CLI::App& verb, const Globals& globals) {
  return AddRouted(verb, globals, Route);
}

Action AddSkillExplain(CLI::App& verb, const Globals& globals) {
  return AddRouted(verb, globals, Explain);
}

Action AddSkill(CLI::App& verb, const Globals& globals) {
  std::vector<std::pair<CLI::App*, Action>> actions;
  std::string names;
  for (const SubVerb& sub : kSubVerbs) {
    CLI::App* app = verb.add_subcommand(sub.name, sub.summary);
    if (*sub.example != '\0') app->footer(std::string("Example: moewe skill ") + sub.example);
    app->fallthrough();
    actions.emplace_back(app, sub.add(*app, globals));
    names += std::string(names.empty() ? "" : ", ") + sub.name;
  }
  return [actions, names] {
    for (const auto& [app, action] : actions) {
      if (app->parsed()) return action();
    }
    throw Error(ErrorCode::kUsage, "say what to do: skill " + names);
  };
}

}  // namespace moewe::cli
