// Any JSON as the skills registry of a small model: it parses or it throws moewe::Error, and what
// parses is written and read back as the same records.
//
// Input: hidden size and layers, a byte each; the JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/cmf/skills.h"
#include "moewe/error.h"

namespace {

namespace cmf = moewe::formats::cmf;

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckRecords(const std::vector<cmf::SkillRecord>& records, const cmf::SkillLimits& limits) {
  moewe::Json list = moewe::Json::array();
  for (const cmf::SkillRecord& record : records) {
    Require(!record.id.empty() && cmf::FindSkill(records, record.id) == &record);
    if (const auto& selection = record.selection) {
      Require(selection->phi_layer < limits.num_layers);
      Require(selection->mean.size() == limits.hidden_size);
      Require(selection->basis.size() == selection->rank * limits.hidden_size);
    }
    list.push_back(cmf::SkillToJson(record));
  }
  const std::vector<cmf::SkillRecord> again = cmf::ParseSkills(list, limits, "again");
  Require(again.size() == records.size());
  for (size_t i = 0; i < again.size(); ++i) Require(again[i].id == records[i].id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const cmf::SkillLimits limits{.hidden_size = data[0] + 1u, .num_layers = data[1] % 64 + 1u};
  std::vector<cmf::SkillRecord> records;
  try {
    records =
        cmf::ParseSkills(moewe::ParseJson({data + 2, size - 2}, "fuzz", "skills"), limits, "fuzz");
  } catch (const moewe::Error&) {
    return 0;
  }
  CheckRecords(records, limits);
  return 0;
}
