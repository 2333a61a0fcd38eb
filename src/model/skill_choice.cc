#include "model/skill_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "formats/cmf/cmf_file.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using formats::cmf::SkillRecord;

// Of written weights, which are rounded.
constexpr double kWeightTolerance = 1e-3;

[[noreturn]] void Unknown(const std::string& id, const formats::Checkpoint& checkpoint) {
  throw Error(ErrorCode::kUnknownName,
              fmt::format("there is no skill '{}': the file has {}", id,
                          formats::cmf::SkillNames(SkillsOf(checkpoint))),
              {checkpoint.files().front(), "--skill"});
}

[[noreturn]] void Malformed(const std::string& problem) {
  throw Error(ErrorCode::kUsage, problem, {"", "--skill"});
}

// "task" only informs (section 9.1): it may name a mask that did not come along.
std::string TaskOf(const SkillRecord& skill, const formats::Checkpoint& checkpoint) {
  const auto* file = dynamic_cast<const formats::CmfFile*>(&checkpoint);
  if (file == nullptr) return {};
  const std::vector<formats::cmf::TaskMask>& masks = file->contents().masks.masks;
  const auto has = [&](const std::string& name) {
    return std::any_of(masks.begin(), masks.end(),
                       [&](const formats::cmf::TaskMask& mask) { return mask.name == name; });
  };
  const std::string& task = skill.input_mask_task;
  if (task.empty()) return has(skill.task) ? skill.task : std::string();
  if (!has(task)) {
    throw Error(ErrorCode::kParse,
                fmt::format("skill '{}' belongs to task mask '{}', which the file does not have; "
                            "--task none runs without",
                            skill.id, task),
                {checkpoint.files().front(), "header.skills"});
  }
  return task;
}

WeightedSkill ParsePart(std::string_view part, const formats::Checkpoint& checkpoint) {
  const size_t equals = part.rfind('=');
  if (equals == part.npos) Malformed(fmt::format("'{}' is not ID=WEIGHT", part));
  WeightedSkill skill;
  skill.id = part.substr(0, equals);
  if (formats::cmf::FindSkill(SkillsOf(checkpoint), skill.id) == nullptr) {
    Unknown(skill.id, checkpoint);
  }
  const std::string_view number = part.substr(equals + 1);
  const char* end = number.data() + number.size();
  const auto [parsed, error] = std::from_chars(number.data(), end, skill.weight);
  if (error != std::errc() || parsed != end || !(skill.weight >= 0.0 && skill.weight <= 1.0)) {
    Malformed(fmt::format("'{}' is no weight between 0 and 1", number));
  }
  return skill;
}

}  // namespace

std::span<const SkillRecord> SkillsOf(const formats::Checkpoint& checkpoint) {
  const auto* file = dynamic_cast<const formats::CmfFile*>(&checkpoint);
  if (file == nullptr) return {};
  return file->contents().header.skills;
}

void RefuseStandaloneSkill(const formats::Checkpoint& checkpoint) {
  for (const SkillRecord& skill : SkillsOf(checkpoint)) {
    if (!skill.standalone()) continue;
    const std::string& file = checkpoint.files().front();
    throw Error(
        ErrorCode::kParse,
        fmt::format("a skill without its base is no model; attach it to the base that it was "
                    "cut from: moewe skill apply BASE.cmf {} OUT.cmf",
                    file),
        {file, "header.skills"});
  }
}

SkillChoice ParseSkillChoice(const std::string& text, const formats::Checkpoint& checkpoint) {
  if (text.empty() || text == "none") return {};
  if (formats::cmf::FindSkill(SkillsOf(checkpoint), text) != nullptr) return {{text, 1.0}};
  if (text.find('=') == text.npos) Unknown(text, checkpoint);
  SkillChoice choice;
  double sum = 0.0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const WeightedSkill skill =
        ParsePart(std::string_view(text).substr(begin, end - begin), checkpoint);
    const bool twice = std::any_of(choice.begin(), choice.end(), [&](const WeightedSkill& other) {
      return other.id == skill.id;
    });
    if (twice) Malformed(fmt::format("'{}' is named twice", skill.id));
    choice.push_back(skill);
    sum += skill.weight;
    begin = end + 1;
  }
  if (std::abs(sum - 1.0) > kWeightTolerance) {
    Malformed(fmt::format("the weights of '{}' add up to {:g}, not to 1", text, sum));
  }
  std::erase_if(choice, [](const WeightedSkill& skill) { return skill.weight == 0.0; });
  for (WeightedSkill& skill : choice) skill.weight /= sum;
  return choice;
}

std::string SkillChoiceText(const SkillChoice& choice) {
  if (choice.empty()) return "none";
  if (choice.size() == 1) return choice.front().id;
  std::string text;
  for (const WeightedSkill& skill : choice) {
    text += fmt::format("{}{}={:.4g}", text.empty() ? "" : ",", skill.id, skill.weight);
  }
  return text;
}

std::string LinkedTask(const formats::Checkpoint& checkpoint, const SkillChoice& choice) {
  std::string linked;
  for (const WeightedSkill& skill : choice) {
    const SkillRecord* record = formats::cmf::FindSkill(SkillsOf(checkpoint), skill.id);
    if (record == nullptr) continue;
    const std::string task = TaskOf(*record, checkpoint);
    if (&skill != &choice.front() && task != linked) return {};
    linked = task;
  }
  return linked;
}

SkillChoice ChooseSkills(std::span<const SkillEnergy> energies, std::optional<double> temperature) {
  if (energies.empty()) return {};
  if (!temperature || energies.size() == 1) return {{energies[0].id, 1.0}};
  // softmax over two, by the difference that both exponents share.
  const double second =
      1.0 / (1.0 + std::exp((energies[1].energy - energies[0].energy) / *temperature));
  if (second == 0.0) return {{energies[0].id, 1.0}};
  return {{energies[0].id, 1.0 - second}, {energies[1].id, second}};
}

}  // namespace moewe::model
