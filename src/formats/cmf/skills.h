// The skills registry of a CMF file (sections 9 and 9.1): records of the header's list "skills",
// and the names of the tensors that belong to them.
#ifndef MOEWE_FORMATS_CMF_SKILLS_H_
#define MOEWE_FORMATS_CMF_SKILLS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"

namespace moewe::formats::cmf {

// The affine subspace that a skill's texts span, for routing: E = |r - BᵀBr|² / |phi|² with
// r = phi - mean, B the basis' rows; phi is the mean over a prompt's positions of the residual
// stream after layer `phi_layer`. The skill with the least E is chosen.
struct SkillSelection {
  std::string metric = "mse";
  uint32_t phi_layer = 0;
  uint32_t rank = 0;
  std::vector<float> mean;   // [hidden]
  std::vector<float> basis;  // [rank, hidden]
};

struct SkillRecord {
  std::string id;
  std::string name;              // for people; may be empty
  std::vector<uint32_t> layers;  // that have tensors of the skill; informative
  std::optional<SkillSelection> selection;
  std::string input_mask_task;  // the task mask that belongs to the skill; empty = none
  Json quality;                 // null = not measured
  // Of a skill that travels without its base (section 9.1); empty elsewhere.
  std::string base_dir_hash;  // of the base's directory, 16 hex digits
  std::string base_arch;
  std::string task;  // the mask of the file's own catalog that the skill activates

  Json json;  // the record as it was read

  bool standalone() const { return !base_dir_hash.empty(); }
};

// Sizes of the model that records are checked against.
struct SkillLimits {
  uint64_t hidden_size = 0;
  uint64_t num_layers = 0;
};

// The member "skills" of a header; null = no skills. Ids are unique, not empty, UTF-8 without
// control characters; mean and basis have exactly the bytes of hidden and rank (an absent rank is
// what the basis holds) and are finite; layers exist. A key with null is absent. Throws
// Error{kParse} naming the field.
std::vector<SkillRecord> ParseSkills(const Json& list, const SkillLimits& limits,
                                     const std::string& path);

// A record for the header: known fields from the struct ("quality" also where it is null: not
// measured), then the unknown ones of record.json. f32 values become f16.
Json SkillToJson(const SkillRecord& record);

// "'code', 'prose'" or "none", for messages.
std::string SkillNames(std::span<const SkillRecord> skills);

// Null if there is none.
const SkillRecord* FindSkill(std::span<const SkillRecord> skills, std::string_view id);

inline constexpr std::string_view kSkillPrefix = "skill.";

// The name of the tensor that replaces `tensor` in a skill: "skill.sql.model.norm.weight".
std::string SkillTensorName(std::string_view id, std::string_view tensor);

struct SkillTensor {
  const SkillRecord* skill = nullptr;
  std::string_view tensor;  // the name of what it replaces; part of the name that was asked about
};

// Whose tensor `name` is; nothing for a tensor of the backbone or of no registered skill. Ids may
// contain dots, so that a name can fit two of them: then the one whose rest `is_backbone` knows,
// else the longer id.
std::optional<SkillTensor> SkillOfTensor(std::span<const SkillRecord> skills, std::string_view name,
                                         FunctionRef<bool(std::string_view tensor)> is_backbone);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_SKILLS_H_
