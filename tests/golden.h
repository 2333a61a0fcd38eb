// Where tests find their golden data, and how they read it.
#ifndef MOEWE_TESTS_GOLDEN_H_
#define MOEWE_TESTS_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "paths.h"

namespace moewe::golden {

// tests/golden/<relative>, part of the repository.
inline std::filesystem::path Path(const std::string& relative) {
  return std::filesystem::path(paths::SourceDir()) / "tests" / "golden" / relative;
}

// Third-party files that the repository does not carry: under $MOEWE_SHARED, by default ../shared
// beside the checkout. A test that needs one calls MOEWE_NEEDS_SHARED, which reports it as skipped
// elsewhere.
inline std::filesystem::path SharedPath(const std::string& relative) {
  const char* root = std::getenv("MOEWE_SHARED");
  return (root != nullptr ? std::filesystem::path(root)
                          : std::filesystem::path(paths::SourceDir()) / ".." / "shared") /
         relative;
}
#define MOEWE_NEEDS_SHARED(relative)                                   \
  if (!std::filesystem::exists(::moewe::golden::SharedPath(relative))) \
  GTEST_SKIP() << "needs third-party data: " << ::moewe::golden::SharedPath(relative)

inline std::vector<uint8_t> ReadBytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json ReadJson(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  return nlohmann::json::parse(in);
}

// A whole file of little-endian f32.
inline std::vector<float> ReadF32(const std::filesystem::path& path) {
  const std::vector<uint8_t> bytes = ReadBytes(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

inline std::vector<uint8_t> FromHex(const std::string& hex) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace moewe::golden

#endif  // MOEWE_TESTS_GOLDEN_H_
