// `moewe template` as a program: batches of both kinds, one rendering, errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "golden.h"
#include "program.h"

namespace moewe {
namespace {

class TemplateVerb : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("moewe_template_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

TEST_F(TemplateVerb, FeatureBatch) {
  const std::string file = Write("t.jinja", "x");
  const auto path = golden::Path("text/chat/micro.jsonl");
  const Outcome outcome =
      RunMoewe("template " + file + " --now 2026-03-07T09:05:03 --batch " + path.string());
  EXPECT_EQ(outcome.code, 0);
  std::ifstream in(path);
  std::stringstream answers(outcome.out);
  size_t count = 0;
  for (std::string line, answer; std::getline(in, line); ++count) {
    ASSERT_TRUE(std::getline(answers, answer));
    const auto expected = nlohmann::json::parse(line);
    const auto actual = nlohmann::json::parse(answer);
    SCOPED_TRACE(expected["id"].get<std::string>());
    if (expected.contains("output")) {
      EXPECT_EQ(actual.value("output", answer), expected["output"]);
    } else {
      ASSERT_TRUE(actual.contains("error")) << answer;
      EXPECT_EQ(actual["error"]["type"], expected["error"]["type"]);
      EXPECT_EQ(actual["error"]["code"], "Parse");
    }
  }
  EXPECT_EQ(count, 202U);
}

TEST_F(TemplateVerb, OneRenderingWithSpecialTokensAndTools) {
  const std::string file = Write("t.jinja",
                                 "{{ bos_token }}{{ messages[0].content }}{{ tools | length }}"
                                 "{{ '>' if add_generation_prompt }}");
  const std::string common = "template " + file + " --messages " +
                             Write("m.json", R"([{"role": "user", "content": "Hi"}])") +
                             " --special-tokens " + Write("s.json", R"({"bos_token": "<s>"})") +
                             " --tools " + Write("tools.json", R"([{"name": "f"}])");
  EXPECT_EQ(RunMoewe(common).out, "<s>Hi1>");
  EXPECT_EQ(RunMoewe(common + " --no-generation-prompt").out, "<s>Hi1");
}

TEST_F(TemplateVerb, ErrorsOfTheTemplateExitAsInvalidFile) {
  const std::string messages = Write("m.json", R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(RunMoewe("template " + Write("bad.jinja", "{% if %}") + " --messages " + messages).code,
            3);
  const Outcome raised =
      RunMoewe("template " + Write("raise.jinja", "{{ raise_exception('no') }}") +
               " --json --messages " + messages);
  EXPECT_EQ(raised.code, 3);
  EXPECT_EQ(nlohmann::json::parse(raised.out)["error"]["code"], "Parse");
}

}  // namespace
}  // namespace moewe
