// Running the program as a person or a script does.
#ifndef MOEWE_TESTS_PROGRAM_H_
#define MOEWE_TESTS_PROGRAM_H_

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
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

// Standard output and exit code of a shell command, in which $MOEWE is the program.
inline Outcome RunShell(const std::string& command) {
  setenv("MOEWE", paths::Program().c_str(), 1);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start a shell");
  Outcome outcome;
  std::array<char, 65536> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.out.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// Standard output and exit code of `moewe ARGUMENTS`, which a shell splits.
inline Outcome RunMoewe(const std::string& arguments) {
  return RunShell("$MOEWE " + arguments + " 2>/dev/null");
}

// A folder of a test's own, removed afterwards.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "moewe_test.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string At(const std::string& name) const { return (path_ / name).string(); }
  // Writes a file and gives its path.
  std::string Put(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return At(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace moewe

#endif  // MOEWE_TESTS_PROGRAM_H_
