// Traces written and read, and what is refused.
#include "experts/trace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "moewe/error.h"

namespace moewe::experts {
namespace {

class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest()
      : path_((std::filesystem::temp_directory_path() / ("moewe_trace." + std::to_string(getpid())))
                  .string()) {}
  ~TraceFileTest() override { std::filesystem::remove(path_); }

  RoutingTrace Read(const std::string& text) const {
    std::ofstream(path_) << text;
    return ReadRoutingTrace(path_);
  }
  std::string path_;
};

TEST_F(TraceFileTest, WhatIsWrittenIsRead) {
  TraceWriter writer(path_, 2, {{1, 8}}, 1234);
  const std::vector<uint32_t> first{0, 7, 3, 1};
  const std::vector<uint32_t> second{5, 2};
  writer.Add(1, first, 2);  // the first pass over the layers
  writer.Add(3, first, 2);  // the second
  writer.Add(1, second, 2);
  writer.Add(3, second, 2);
  writer.Commit();
  const RoutingTrace trace = ReadRoutingTrace(path_);
  EXPECT_EQ(trace.tokens, 3u);
  EXPECT_EQ(trace.num_layers, 2u);
  EXPECT_EQ(trace.expert_bytes, 1234u);
  ASSERT_EQ(trace.layers.size(), 4u);
  EXPECT_EQ(trace.layers[1].ids, (std::vector<uint32_t>{0, 7, 3, 1, 5, 2}));
  EXPECT_EQ(trace.layers[0].top_k, 0u);
  EXPECT_EQ(trace.ExpertsPerLayer(), (std::vector<uint32_t>{0, 8}));
  const ExpertIds ids(trace.ExpertsPerLayer());
  EXPECT_EQ(AccessesInOrder(trace, ids),
            (std::vector<ExpertId>{0, 7, 0, 7, 3, 1, 3, 1, 5, 2, 5, 2}));
}

TEST_F(TraceFileTest, TheLayoutOfLogits) {
  const RoutingTrace trace =
      Read(R"({"0": {"ids": [[0, 2], [1, 0]], "weights": [[0.5, 0.5], [0.9, 0.1]]},
               "2": {"ids": [[3, 2], [1, 3]]}})");
  EXPECT_EQ(trace.tokens, 2u);
  EXPECT_EQ(trace.num_layers, 3u);
  EXPECT_EQ(trace.ExpertsPerLayer(), (std::vector<uint32_t>{3, 0, 4}));
  EXPECT_FALSE(trace.expert_bytes);
  EXPECT_EQ(trace.most_at_once(), 2u);
  EXPECT_EQ(trace.experts(), 7u);
}

TEST_F(TraceFileTest, AnythingElseIsRefused) {
  const std::string head =
      R"({"format":"moewe-trace","version":1,"num_layers":1,"num_experts":{"0":4}})"
      "\n";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"0": [[1]]})"),
        std::string(R"({"x": {"ids": [[1]]}})"), std::string(R"({"0": {"ids": [[1], [1, 2]]}})"),
        std::string(R"({"0": {"ids": [[1, 1]]}})"), std::string(R"({"0": {"ids": [[-1]]}})"),
        std::string(R"({"0": {"ids": [[99999999]]}})"), std::string(R"({"0": {"ids": [[]]}})"),
        std::string(R"({"0": {"ids": [[1]]}, "1": {"ids": [[1], [2]]}})"),
        std::string(R"({"99999999": {"ids": [[1]]}})"), head, head + R"({"layer":0,"ids":[[4]]})",
        head + R"({"layer":0})", head + "[1]",
        head + R"({"layer":1,"ids":[[1],[2]]})"
               "\n"
               R"({"layer":0,"ids":[[1]]})",
        std::string(R"({"format":"moewe-trace","version":2,"num_layers":1,"num_experts":{}})"),
        std::string(R"({"format":"moewe-trace","version":1,"num_layers":0,"num_experts":{}})")}) {
    EXPECT_THROW(Read(text), Error) << text;
  }
  EXPECT_THROW(ReadRoutingTrace(path_ + ".none"), Error);
}

}  // namespace
}  // namespace moewe::experts
