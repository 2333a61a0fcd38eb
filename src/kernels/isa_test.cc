#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/compute.h"
#include "moewe/error.h"

namespace moewe::kernels {
namespace {

TEST(IsaDeathTest, AnUnknownWishIsAnErrorOfTheFirstCompute) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";  // a process that has decided nothing yet
  const auto open = [] {
    setenv("MOEWE_ISA", "avx9", 1);
    ThreadPool pool(1);
    try {
      const Compute compute(&pool, Activations::kInt8);
    } catch (const Error& error) {
      std::exit(error.code() == ErrorCode::kUnknownName ? 42 : 1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(open(), testing::ExitedWithCode(42), "");
}

}  // namespace
}  // namespace moewe::kernels
