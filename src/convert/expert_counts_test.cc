// Routing counts: reading, adding, covering sets.
#include "convert/expert_counts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "golden.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using ExpertList = std::vector<uint32_t>;

TEST(CoveringExperts, SmallestSetThatReachesTheShare) {
  const std::vector<uint64_t> counts{5, 40, 5, 30, 20, 0};
  EXPECT_EQ(CoveringExperts(counts, 0.01), (ExpertList{1}));
  EXPECT_EQ(CoveringExperts(counts, 0.4), (ExpertList{1}));
  EXPECT_EQ(CoveringExperts(counts, 0.41), (ExpertList{1, 3}));
  EXPECT_EQ(CoveringExperts(counts, 0.95),
            (ExpertList{0, 1, 3, 4}));  // the tie goes to the lower id
  EXPECT_EQ(CoveringExperts(counts, 1.0), (ExpertList{0, 1, 2, 3, 4}));
  // Nothing counted says nothing.
  EXPECT_EQ(CoveringExperts(std::vector<uint64_t>{0, 0, 0}, 0.5), (ExpertList{0, 1, 2}));
}

TEST(ExpertCounts, JsonBothWaysAndSums) {
  const Json json = Json::parse(R"({"0": [1, 2], "2": [3, 4]})");
  ExpertCounts counts = ExpertCountsFromJson(json, "f");
  EXPECT_EQ(ExpertCountsToJson(counts), json);
  AddCounts(ExpertCountsFromJson(Json::parse(R"({"1": [7, 0], "2": [1, 1]})"), "g"), "g", &counts);
  EXPECT_EQ(ExpertCountsToJson(counts), Json::parse(R"({"0": [1, 2], "1": [7, 0], "2": [4, 5]})"));
  for (const char* wrong : {"[]", "3", R"({"x": [1]})", R"({"0": []})", R"({"0": [1, -1]})",
                            R"({"0": [1.5]})", R"({"0": 1})", R"({"0": [1], "00": [1]})",
                            R"({"0": [18446744073709551615, 1]})", R"({"-1": [1]})"}) {
    EXPECT_THROW(ExpertCountsFromJson(Json::parse(wrong), "f"), Error) << wrong;
  }
  EXPECT_THROW(AddCounts({{0, {1, 2, 3}}}, "g", &counts), Error);
  EXPECT_THROW(AddCounts({{0, {UINT64_MAX, 0}}}, "g", &counts), Error);
}

TEST(ExpertCountsTest, ReadsTheFormOfExistingFiles) {
  const std::string file = golden::Path("cmf/files/moe_qwen3_q4tp.moe_stats.json").string();
  const ExpertCounts counts = ReadExpertCounts({&file, 1}).counts;
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts.at(1).size(), 8u);
  EXPECT_EQ(counts.at(0)[2], 107u);
}

TEST(ExpertCountsTest, AnythingElseIsRefused) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("moewe_route_counts." + std::to_string(getpid()) + ".json");
  const std::string name = path.string();
  for (const char* text : {"[]", "{}", "{\"0\": 3}", "{\"0\": [1, -2]}", "{\"0\": [1.5]}",
                           "{\"0\": [\"1\"]}", "{\"a\": [1]}", "{\"0\": [1]", ""}) {
    std::ofstream(path) << text;
    EXPECT_THROW(ReadExpertCounts({&name, 1}), Error) << text;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace moewe::convert
