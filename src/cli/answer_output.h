// How answers and what they cost are shown.
#ifndef MOEWE_CLI_ANSWER_OUTPUT_H_
#define MOEWE_CLI_ANSWER_OUTPUT_H_

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "moewe/moewe.h"

namespace moewe::cli {

// To stdout, at once.
void PrintText(std::string_view text);

// "1,2,3", the form that --ids takes.
std::string JoinIds(std::span<const Token> ids);

// text, ids, finish_reason, usage, seed, timings, cache, speculation; skill, if one answered.
nlohmann::ordered_json AnswerJson(const Answer& answer);

// "skill code (E code 0.8753, prose 0.8774)", of an answer that was routed.
std::string SkillChosen(const Answer& answer);

// Tokens and tokens a second, one line on stderr, and one for speculation that there was.
void PrintStats(const Answer& answer);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_ANSWER_OUTPUT_H_
