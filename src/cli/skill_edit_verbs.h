// The sub-verbs of `moewe skill` that write files, in the manner of skill_verbs.h.
#ifndef MOEWE_CLI_SKILL_EDIT_VERBS_H_
#define MOEWE_CLI_SKILL_EDIT_VERBS_H_

#include "cli/verbs.h"

namespace moewe::cli {

Action AddSkillAdd(CLI::App& verb, const Globals& globals);
Action AddSkillRemove(CLI::App& verb, const Globals& globals);
Action AddSkillExport(CLI::App& verb, const Globals& globals);
Action AddSkillApply(CLI::App& verb, const Globals& globals);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_SKILL_EDIT_VERBS_H_
