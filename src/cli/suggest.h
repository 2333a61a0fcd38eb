// "Did you mean": the candidate that a mistyped word is nearest to.
#ifndef MOEWE_CLI_SUGGEST_H_
#define MOEWE_CLI_SUGGEST_H_

#include <string>
#include <string_view>
#include <vector>

namespace moewe::cli {

// "; did you mean 'convert'?", or nothing if no candidate is near: a few letters differ, or one of
// the two words is the beginning of the other (--temperature, --temp).
std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_SUGGEST_H_
