#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/random.h"

namespace moewe::engine {
namespace {

using Ids = std::vector<TokenId>;

// What is drafted after `tokens`, of at most `most`.
Ids Drafted(const Ids& tokens, size_t most, size_t* match = nullptr) {
  PromptLookup lookup;
  Ids out(most);
  const Draft draft = lookup.Propose(tokens, out);
  EXPECT_LE(draft.length, most);
  out.resize(draft.length);
  if (match != nullptr) *match = draft.match;
  return out;
}

TEST(PromptLookup, WhatFollowedBefore) {
  size_t match = 0;
  EXPECT_EQ(Drafted({7, 1, 2, 3, 4, 5, 9, 1, 2}, 3, &match), Ids({3, 4, 5}));
  EXPECT_EQ(match, 2u);
  EXPECT_EQ(Drafted({7, 1, 2, 3, 4, 5, 9, 1, 2, 3}, 2, &match), Ids({4, 5}));
  EXPECT_EQ(match, 3u);
}

TEST(PromptLookup, NothingWithoutTwoTokensThatAgree) {
  EXPECT_TRUE(Drafted({}, 4).empty());
  EXPECT_TRUE(Drafted({1}, 4).empty());
  EXPECT_TRUE(Drafted({1, 1}, 4).empty());
  EXPECT_TRUE(Drafted({1, 2, 3, 4, 5}, 4).empty());
  EXPECT_TRUE(Drafted({1, 2, 3, 9, 2}, 4).empty());
  EXPECT_TRUE(Drafted({1, 2, 3, 1, 2}, 0).empty());
}

TEST(PromptLookup, TheLongestMatchBeforeTheLatest) {
  //                   longer match      later, shorter
  EXPECT_EQ(Drafted({5, 6, 7, 40, 0, 1, 6, 7, 50, 0, 5, 6, 7}, 1), Ids({40}));
  EXPECT_EQ(Drafted({6, 7, 40, 0, 6, 7, 50, 1, 6, 7}, 1), Ids({50}));
}

TEST(PromptLookup, WhatRepeatsGoesOnRepeating) {
  EXPECT_EQ(Drafted({9, 4, 4, 4}, 5), Ids({4, 4, 4, 4, 4}));
  EXPECT_EQ(Drafted({1, 2, 3, 1, 2, 3, 1, 2}, 7), Ids({3, 1, 2, 3, 1, 2, 3}));
}

TEST(PromptLookup, AnsweringTokenByTokenIsTheSameAsAtOnce) {
  Random random(3);
  Ids tokens;
  PromptLookup lookup;
  size_t drafts = 0;
  for (int i = 0; i < 2000; ++i) {
    tokens.push_back(static_cast<TokenId>(random.Next() % 12));
    if (i % 3 == 0) continue;  // several new tokens at a call
    Ids out(4);
    out.resize(lookup.Propose(tokens, out).length);
    EXPECT_EQ(out, Drafted(tokens, 4));
    drafts += out.empty() ? 0 : 1;
  }
  EXPECT_GT(drafts, 1000u);
}

// Against the definition, by comparing with every earlier place.
TEST(PromptLookup, AsDefined) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    Ids tokens;
    while (tokens.size() < 30) tokens.push_back(static_cast<TokenId>(random.Next() % 4));
    size_t best = 0, best_match = 0;
    for (size_t at = 0; at + 1 < tokens.size(); ++at) {
      size_t match = 0;
      while (match < PromptLookup::kLongestMatch && match <= at &&
             tokens[at - match] == tokens[tokens.size() - 1 - match]) {
        ++match;
      }
      if (match >= best_match) {
        best_match = match;
        best = at;
      }
    }
    size_t match = 0;
    const Ids drafted = Drafted(tokens, 1, &match);
    if (best_match < PromptLookup::kShortestMatch) {
      EXPECT_TRUE(drafted.empty());
    } else {
      EXPECT_EQ(match, best_match);
      EXPECT_EQ(drafted, Ids({tokens[best + 1]}));
    }
  }
}

}  // namespace
}  // namespace moewe::engine
