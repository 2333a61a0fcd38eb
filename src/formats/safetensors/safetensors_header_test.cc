// Headers that are written parse back, in the library's order and with its padding.
#include "formats/safetensors/safetensors_header.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes_of.h"
#include "formats/safetensors/safetensors.h"

namespace moewe::formats {
namespace {

TEST(SafetensorsHeaderTest, WhatIsWrittenParses) {
  std::vector<SafetensorsTensor> tensors = {{"b", DType::kF16, {3}, 6},
                                            {"z", DType::kF32, {1, 2}, 8},
                                            {"a", DType::kBf16, {2, 2}, 8},
                                            {"c", DType::kBf16, {0}, 0}};
  std::sort(tensors.begin(), tensors.end(), SafetensorsOrder);
  const std::string header = SafetensorsHeaderBytes(tensors, {{"moewe.key", "\"x\""}});
  EXPECT_EQ(header.size() % 8, 0u);
  const std::string file = header + std::string(22, 'x');
  const SafetensorsHeader parsed = ParseSafetensors(BytesOf(file), "f");
  EXPECT_EQ(parsed.data_offset, header.size());
  EXPECT_EQ(parsed.metadata.at("moewe.key"), "\"x\"");
  ASSERT_EQ(parsed.entries.size(), 4u);
  const auto offset = [&](const std::string& name) {
    const auto found = std::find_if(parsed.entries.begin(), parsed.entries.end(),
                                    [&](const SafetensorsEntry& e) { return e.name == name; });
    return found->file_offset - header.size();
  };
  EXPECT_EQ(offset("z"), 0u);  // f32, bf16 by name, f16
  EXPECT_EQ(offset("a"), 8u);
  EXPECT_EQ(offset("c"), 16u);
  EXPECT_EQ(offset("b"), 16u);
  EXPECT_EQ(file.find("__metadata__"), 10u);
}

}  // namespace
}  // namespace moewe::formats
