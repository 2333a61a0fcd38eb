// Helpers of this layer's tests: a scratch folder, small safetensors files, the code of a thrown
// error.
#ifndef MOEWE_FORMATS_TEST_UTIL_H_
#define MOEWE_FORMATS_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "moewe/error.h"
#include "thrown.h"

namespace moewe::formats {

class ScratchTest : public testing::Test {
 protected:
  ScratchTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("moewe_formats_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ScratchTest() override { std::filesystem::remove_all(folder_); }

  // Writes folder/name and returns its path.
  std::string Put(const std::string& name, std::string_view content) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

// "[u64 length][header][data]".
inline std::string Safetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_TEST_UTIL_H_
