#include "paths.h"

namespace moewe::paths {

std::string SourceDir() { return MOEWE_SOURCE_DIR; }
std::string DemoModel() { return SourceDir() + "/models/demo"; }
std::string Program() { return MOEWE_BINARY; }

}  // namespace moewe::paths
