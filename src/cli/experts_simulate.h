// experts simulate: what caches of several sizes and policies would have made of a recorded run.
#ifndef MOEWE_CLI_EXPERTS_SIMULATE_H_
#define MOEWE_CLI_EXPERTS_SIMULATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace moewe::cli {

struct SimulateFlags {
  std::string trace;
  std::vector<uint32_t> slots;        // empty = shares of all experts
  std::vector<std::string> memories;  // sizes instead
  int floor = -1;                     // -1 = what a token chooses in a layer
  int threads = 0;
};

void AddSimulateFlags(CLI::App* verb, SimulateFlags* flags);
int SimulateExperts(const SimulateFlags& flags, const Globals& globals);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_EXPERTS_SIMULATE_H_
