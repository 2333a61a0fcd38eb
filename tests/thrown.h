// The error that an action ends with.
#ifndef MOEWE_TESTS_THROWN_H_
#define MOEWE_TESTS_THROWN_H_

#include <optional>
#include <string>

#include "moewe/error.h"

namespace moewe {

// The code of the Error that `action` throws, and what it says; or nothing.
template <typename Action>
std::optional<ErrorCode> Thrown(const Action& action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  return std::nullopt;
}

}  // namespace moewe

#endif  // MOEWE_TESTS_THROWN_H_
