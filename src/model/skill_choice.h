// Which skills of a CMF file (section 9) a model runs with: named, weighed, or routed to by a
// prompt's energies.
#ifndef MOEWE_MODEL_SKILL_CHOICE_H_
#define MOEWE_MODEL_SKILL_CHOICE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/cmf/skills.h"

namespace moewe::model {

struct WeightedSkill {
  std::string id;
  double weight = 1.0;

  bool operator==(const WeightedSkill&) const = default;
};

// Weights are positive and add up to 1. One skill: its tensors as they are stored. Several: every
// tensor is the weighted sum, the backbone's standing for a skill that has none. Empty: the
// backbone alone.
using SkillChoice = std::vector<WeightedSkill>;

// How far a prompt's state is from the texts of a skill: formats::cmf::SkillSelection's E.
struct SkillEnergy {
  std::string id;
  double energy = 0.0;
  uint32_t phi_layer = 0;
};

// The registry of a checkpoint; empty unless it is a CMF file with skills.
std::span<const formats::cmf::SkillRecord> SkillsOf(const formats::Checkpoint& checkpoint);

// Throws Error{kParse}, saying what to do, for a file that is a skill without its base (section
// 9.1): it is no model.
void RefuseStandaloneSkill(const formats::Checkpoint& checkpoint);

// "none" or "" is the backbone, "sql" one skill, "sql=0.6,prose=0.4" a blend. Throws
// Error{kUnknownName} listing the ids, Error{kUsage} for weights that do not add up to 1.
SkillChoice ParseSkillChoice(const std::string& text, const formats::Checkpoint& checkpoint);

// The inverse: "none", "sql", "sql=0.6,prose=0.4".
std::string SkillChoiceText(const SkillChoice& choice);

// The task mask that the skills share, or empty. Throws Error{kParse} if the file lacks it.
std::string LinkedTask(const formats::Checkpoint& checkpoint, const SkillChoice& choice);

// Of energies in ascending order: the first, or with a temperature T the first two by
// softmax(-E / T).
SkillChoice ChooseSkills(std::span<const SkillEnergy> energies, std::optional<double> temperature);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_SKILL_CHOICE_H_
