// Running the program as a person or a script does.
#ifndef MOEWE_TESTS_PROGRAM_H_
#define MOEWE_TESTS_PROGRAM_H_

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "paths.h"

namespace moewe {

struct Outcome {
  int code = -1;  // exit code; -1 = ended by a signal
  std::string out;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

// Standard output and exit code of `moewe ARGUMENTS`, which a shell splits.
inline Outcome RunMoewe(const std::string& arguments) {
  std::FILE* pipe = popen((paths::Program() + " " + arguments + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + paths::Program());
  Outcome outcome;
  std::array<char, 65536> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.out.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace moewe

#endif  // MOEWE_TESTS_PROGRAM_H_
