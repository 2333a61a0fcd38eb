// The sub-verbs of `moewe skill`: an Add function each, as for verbs. verb_skill.cc has the table
// and those that look; those that write are in files of their own.
#ifndef MOEWE_CLI_SKILL_VERBS_H_
#define MOEWE_CLI_SKILL_VERBS_H_

#include "cli/verbs.h"

namespace moewe::cli {

Action AddSkillList(CLI::App& verb, const Globals& globals);
Action AddSkillRoute(CLI::App& verb, const Globals& globals);
Action AddSkillExplain(CLI::App& verb, const Globals& globals);
// verb_skill_edit.cc
Action AddSkillAdd(CLI::App& verb, const Globals& globals);
Action AddSkillRemove(CLI::App& verb, const Globals& globals);
Action AddSkillExport(CLI::App& verb, const Globals& globals);
Action AddSkillApply(CLI::App& verb, const Globals& globals);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_SKILL_VERBS_H_
