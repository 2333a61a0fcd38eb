// Skills that travel without their base (CMF v2 section 9.1): cut from a specialist, applied to any
// copy of the base.
#ifndef MOEWE_CONVERT_SKILL_FILE_H_
#define MOEWE_CONVERT_SKILL_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "formats/cmf/cmf_file.h"

namespace moewe::convert {

struct SkillExportOptions {
  std::string id = {};
  std::string name = {};  // for people; may be empty
  // The specialist's mask that the skill activates; empty = its default_task, if that is a mask.
  std::string task = {};
};

struct SkillFileResult {
  size_t tensors = 0;  // the skill's
  uint64_t bytes = 0;  // of these
  std::string id = {};
};

// Writes to `dst` the tensors of `specialist` whose dtype, shape or bytes are not those of `base`,
// its masks and index, and its header with one record that is bound to `base` by the hash of that
// file's directory. Throws Error{kUsage} if nothing differs, a tensor of the base is missing, the
// arch differs or the id can't be one; kUnsupported for shards, for a base or specialist that is no
// whole model, and for a specialist with skills of its own; kUnknownName for a task that is no
// mask.
SkillFileResult ExportSkill(const formats::CmfFile& specialist, const formats::CmfFile& base,
                            const std::string& dst, const SkillExportOptions& options);

// Writes the specialist that `skill` was cut from to `dst`: tensors in the base's order, those that
// the skill has in place of the base's, and what is new at the end; header and tokenizer of the
// base; masks and index of the skill if it has masks. The record stays, without what bound it.
// Throws Error{kParse} if `skill` is no standalone skill or was cut against another base; with
// `force` the latter is told to `warning` instead. kUsage for an id that the base has.
SkillFileResult ApplySkill(const formats::CmfFile& base, const formats::CmfFile& skill,
                           const std::string& dst, bool force,
                           const std::function<void(const std::string&)>& warning);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SKILL_FILE_H_
