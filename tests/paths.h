// Where this build's sources and program are. Functions, so that no other object file depends on
// the folder it was built in and a compiler cache serves every checkout.
#ifndef MOEWE_TESTS_PATHS_H_
#define MOEWE_TESTS_PATHS_H_

#include <string>

namespace moewe::paths {

std::string SourceDir();  // the checkout
std::string DemoModel();  // models/demo in it
std::string Program();    // the moewe that was built with these tests

}  // namespace moewe::paths

#endif  // MOEWE_TESTS_PATHS_H_
