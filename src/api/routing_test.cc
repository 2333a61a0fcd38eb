// The public API with skill "auto": every request is answered by the skill that its own prompt is
// nearest to.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "golden.h"
#include "moewe/moewe.h"

namespace moewe {
namespace {

// The first is nearest to prose, the second to code.
const std::vector<Token> kPrompts[] = {{110, 47, 73, 178, 26}, {203}};
const std::string kSkills[] = {"prose", "code"};

Model Open(const std::string& skill) {
  ModelOptions options;
  options.skill = skill;
  return Model::Open(golden::Path("cmf/files/skills_2.cmf").string(), options);
}

std::vector<Token> Answered(const Model& model, const std::vector<Token>& prompt,
                            Answer* answer = nullptr) {
  GenerateOptions options;
  options.temperature = 0.0f;
  options.max_tokens = 8;
  options.ignore_eos = true;
  const Answer given = model.Generate(prompt, options);
  if (answer != nullptr) *answer = given;
  return given.ids;
}

TEST(Routing, EveryRequestByItsOwnPrompt) {
  const Model routed = Open("auto");
  for (const size_t i : {0, 1, 1, 0}) {
    Answer answer;
    const std::vector<Token> ids = Answered(routed, kPrompts[i], &answer);
    EXPECT_EQ(answer.skill, kSkills[i]);
    ASSERT_EQ(answer.skill_energies.size(), 2u);
    EXPECT_EQ(answer.skill_energies[0].id, kSkills[i]);
    EXPECT_LT(answer.skill_energies[0].energy, answer.skill_energies[1].energy);
    const Model named = Open(kSkills[i]);
    EXPECT_EQ(ids, Answered(named, kPrompts[i], &answer));
    EXPECT_EQ(answer.skill, kSkills[i]);
    EXPECT_TRUE(answer.skill_energies.empty());
    EXPECT_EQ(routed.Logits(kPrompts[i]), named.Logits(kPrompts[i]));
    EXPECT_EQ(routed.RankSkills(kPrompts[i]).front().id, kSkills[i]);
  }
}

TEST(Routing, RequestsFromSeveralThreadsTakeTurns) {
  const Model routed = Open("auto");
  std::vector<Token> results[4];
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { results[t] = Answered(routed, kPrompts[t % 2]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(results[t], Answered(Open(kSkills[t % 2]), kPrompts[t % 2]));
  }
}

TEST(Routing, AFaultLeavesTheModelUsable) {
  const Model routed = Open("auto");
  const std::vector<Token> too_long(10'000, 1);
  EXPECT_THROW(Answered(routed, too_long), Error);
  EXPECT_THROW(Answered(routed, {}), Error);
  EXPECT_THROW(Answered(routed, {1'000'000}), Error);
  EXPECT_EQ(Answered(routed, kPrompts[0]), Answered(Open("prose"), kPrompts[0]));
  EXPECT_THROW(Open("prose").RankSkills(kPrompts[0]), Error);
}

}  // namespace
}  // namespace moewe
