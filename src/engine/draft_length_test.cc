#include "engine/draft_length.h"

#include <gtest/gtest.h>

namespace moewe::engine {
namespace {

StepTimes Measured(double extra) {
  StepTimes times;
  for (int i = 0; i < 15; ++i) times.Add(1, 0.010);
  for (int i = 0; i < 7; ++i) times.Add(5, 0.010 * (1.0 + 4.0 * extra));
  return times;
}

TEST(StepTimes, WhatTheLastStepsTakeUndisturbed) {
  StepTimes times;
  EXPECT_FALSE(times.plain());
  times.Add(3, 1.0);  // says nothing before steps of one row are known
  for (const double seconds : {0.010, 0.300, 0.011, 0.009, 0.010}) times.Add(1, seconds);
  EXPECT_DOUBLE_EQ(*times.plain(), 0.010);
  EXPECT_DOUBLE_EQ(times.extra(), 0.5);
  for (const double seconds : {0.014, 0.900, 0.014}) times.Add(3, seconds);
  EXPECT_NEAR(times.extra(), 0.2, 1e-9);
  // Times of now replace those of before.
  for (int i = 0; i < 15; ++i) times.Add(1, 0.020);
  EXPECT_DOUBLE_EQ(*times.plain(), 0.020);
}

TEST(DraftLength, TheBestNumberIsThatOfTrying) {
  for (const double right : {0.1, 0.4, 0.7, 0.9, 0.99}) {
    for (const double extra : {0.0, 0.05, 0.3, 0.6, 0.95}) {
      size_t best = 0;
      double best_rate = 1.0, tokens = 1.0, likely = 1.0;
      for (size_t n = 1; n <= 12; ++n) {
        likely *= right;
        tokens += likely;
        const double rate = tokens / (1.0 + extra * static_cast<double>(n));
        if (rate > best_rate) {
          best_rate = rate;
          best = n;
        }
      }
      EXPECT_EQ(DraftLength::Best(right, extra, 12, false), best) << right << ", " << extra;
    }
  }
}

TEST(DraftLength, FewerPayWhereRightOnesAreComputedAgain) {
  for (const double right : {0.3, 0.6, 0.8, 0.95}) {
    for (const double extra : {0.05, 0.3, 0.6}) {
      EXPECT_LE(DraftLength::Best(right, extra, 12, true),
                DraftLength::Best(right, extra, 12, false));
      // One draft leaves nothing to compute again.
      EXPECT_EQ(DraftLength::Best(right, extra, 1, true),
                DraftLength::Best(right, extra, 1, false));
    }
  }
  EXPECT_LT(DraftLength::Best(0.8, 0.3, 12, true), DraftLength::Best(0.8, 0.3, 12, false));
  EXPECT_EQ(DraftLength::Best(1.0, 0.5, 12, true), 12u);
}

TEST(DraftLength, NothingBeforeAStepIsKnown) {
  DraftLength length;
  EXPECT_EQ(length.Choose(StepTimes(), 8, 8, false), 0u);
  EXPECT_GT(length.Choose(Measured(0.1), 8, 8, false), 0u);
  EXPECT_EQ(length.Choose(Measured(0.1), 8, 0, false), 0u);
}

TEST(DraftLength, DraftsThatAreWrongStopAndAreTriedAgainMoreAndMoreRarely) {
  const StepTimes times = Measured(0.3);
  DraftLength length;
  size_t in_first = 0, in_last = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t n = length.Choose(times, 4, 8, false);
    if (n > 0) length.Note(4, 1, 0);
    if (i < 100) in_first += n;
    if (i >= 1900) in_last += n;
  }
  EXPECT_GT(in_first, 0u);
  EXPECT_LT(in_first, 50u);
  EXPECT_LE(in_last, 2u);
  // From then on right, they come back.
  for (int i = 0; i < 6000; ++i) {
    const size_t n = length.Choose(times, 4, 8, false);
    if (n > 0) length.Note(4, n, n);
  }
  EXPECT_EQ(length.Choose(times, 4, 8, false), 8u);
}

TEST(DraftLength, RowsThatCostAStepNeverPay) {
  const StepTimes times = Measured(1.0);
  DraftLength length;
  size_t drafted = 0;
  for (int i = 0; i < 1000; ++i) {
    const size_t n = length.Choose(times, 8, 8, false);
    if (n > 0) length.Note(8, n, n);
    drafted += n;
  }
  EXPECT_LE(drafted, 2 * 1000 / 8u);  // trials, which cost nothing while they are right
  for (int i = 0; i < 1000; ++i) {
    if (length.Choose(times, 8, 8, false) > 0) length.Note(8, 1, 0);
  }
  drafted = 0;
  for (int i = 0; i < 1000; ++i) {
    const size_t n = length.Choose(times, 8, 8, false);
    if (n > 0) length.Note(8, 1, 0);
    drafted += n;
  }
  EXPECT_LE(drafted, 2 * 8u);
}

TEST(DraftLength, AStepWithoutDraftsNowAndThen) {
  const StepTimes times = Measured(0.05);
  DraftLength length;
  size_t plain = 0;
  for (int i = 0; i < 330; ++i) {
    const size_t n = length.Choose(times, 8, 8, false);
    if (n == 0) ++plain;
    length.Note(8, n, n);
  }
  EXPECT_EQ(plain, 10u);
}

}  // namespace
}  // namespace moewe::engine
