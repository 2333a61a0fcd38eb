// Products restricted to some rows, and FFNs to some neurons: equal, bit for bit, to computing
// everything and zeroing afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/compute.h"
#include "quant/codec.h"

namespace moewe::kernels {
namespace {

constexpr size_t kTokens = 3;
constexpr size_t kHidden = 64;
constexpr size_t kWidth = 96;

std::vector<float> Values(size_t n, float seed) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = std::sin(seed + 0.37f * static_cast<float>(i));
  return values;
}

class LiveRows : public testing::TestWithParam<std::tuple<DType, Activations>> {
 protected:
  Matrix Encoded(uint32_t rows, uint32_t cols, float seed) {
    const quant::MatrixShape shape{rows, cols};
    storage_.emplace_back();
    quant::FindCodec(dtype_)->encode(Values(size_t{rows} * cols, seed), shape, &storage_.back());
    return {dtype_, rows, cols, storage_.back()};
  }

  const DType dtype_ = std::get<0>(GetParam());
  std::vector<std::vector<uint8_t>> storage_;
  ThreadPool pool_{2};
  Compute compute_{&pool_, std::get<1>(GetParam())};
};

TEST_P(LiveRows, ProjectComputesTheListedRowsAndLeavesTheOthers) {
  const Matrix w = Encoded(kWidth, kHidden, 1.0f);
  const std::vector<float> x = Values(kTokens * kHidden, 2.0f);
  const std::vector<float> bias = Values(kWidth, 3.0f);
  std::vector<float> all(kTokens * kWidth);
  const Projection whole{w, bias.data(), all.data(), kWidth};
  compute_.Project({&whole, 1}, x.data(), kTokens, kHidden);
  for (const std::vector<uint32_t>& rows :
       {std::vector<uint32_t>{0}, {95}, {3, 4, 5, 40, 41, 77, 95}}) {
    std::vector<float> some(kTokens * kWidth, 7.0f);
    const Projection part{w, bias.data(), some.data(), kWidth, rows};
    compute_.Project({&part, 1}, x.data(), kTokens, kHidden);
    for (size_t i = 0; i < some.size(); ++i) {
      const bool live =
          std::binary_search(rows.begin(), rows.end(), static_cast<uint32_t>(i % kWidth));
      EXPECT_EQ(some[i], live ? all[i] : 7.0f) << i;
    }
  }
}

TEST_P(LiveRows, FfnIsThatOfZeroedNeurons) {
  FfnMatrices ffn{Encoded(kWidth, kHidden, 1.0f), Encoded(kWidth, kHidden, 2.0f),
                  Encoded(kHidden, kWidth, 3.0f)};
  const std::vector<float> x = Values(kTokens * kHidden, 4.0f);
  std::vector<float> all(kTokens * kHidden);
  compute_.Ffn(ffn, GateFunction::kSilu, x.data(), kTokens, all.data());

  std::vector<uint32_t> live;
  for (uint32_t i = 0; i < kWidth; ++i) {
    if (i / 32 != 1 && i % 3 != 0) live.push_back(i);  // a whole group of 32 is dead
  }
  // Expected: gate and up in full, the dead neurons zeroed, down in full.
  std::vector<float> gate(kTokens * kWidth);
  std::vector<float> up(kTokens * kWidth);
  const std::vector<Projection> in{{ffn.gate, nullptr, gate.data(), kWidth},
                                   {ffn.up, nullptr, up.data(), kWidth}};
  compute_.Project(in, x.data(), kTokens, kHidden);
  std::vector<float> expected(kTokens * kHidden);
  const Projection down{ffn.down, nullptr, expected.data(), kHidden};
  for (size_t i = 0; i < gate.size(); ++i) {
    const bool is_live =
        std::binary_search(live.begin(), live.end(), static_cast<uint32_t>(i % kWidth));
    gate[i] = is_live ? gate[i] / (1.0f + std::exp(-gate[i])) * up[i] : 0.0f;
  }
  compute_.Project({&down, 1}, gate.data(), kTokens, kWidth);

  ffn.live = live;
  std::vector<float> masked(kTokens * kHidden);
  compute_.Ffn(ffn, GateFunction::kSilu, x.data(), kTokens, masked.data());
  // The gate function of a fast kernel may differ from this one in the last bits.
  for (size_t i = 0; i < masked.size(); ++i) EXPECT_NEAR(masked[i], expected[i], 0.05f) << i;
  EXPECT_NE(masked, all);

  // All neurons listed = no list.
  live.resize(kWidth);
  for (uint32_t i = 0; i < kWidth; ++i) live[i] = i;
  ffn.live = live;
  compute_.Ffn(ffn, GateFunction::kSilu, x.data(), kTokens, masked.data());
  EXPECT_EQ(masked, all);

  // An expert's FFN keeps to its list as well, token by token.
  live.resize(10);
  ffn.live = live;
  compute_.Ffn(ffn, GateFunction::kSilu, x.data(), kTokens, masked.data());
  const std::vector<uint32_t> rows{0, 1, 2};
  const ExpertWork work{ffn, rows, rows};
  std::vector<float> routed(kTokens * kHidden);
  compute_.RoutedFfn({&work, 1}, GateFunction::kSilu, x.data(), kHidden, routed.data());
  EXPECT_EQ(routed, masked);
}

INSTANTIATE_TEST_SUITE_P(All, LiveRows,
                         testing::Combine(testing::Values(DType::kF32, DType::kF16, DType::kQ8Row,
                                                          DType::kQ82f, DType::kQ4Block,
                                                          DType::kQ4Tiled, DType::kQ4tp,
                                                          DType::kSmoeQ4, DType::kSmoeQ2),
                                          testing::Values(Activations::kF32, Activations::kInt8)),
                         [](const auto& test) {
                           return std::string(DTypeName(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) == Activations::kF32 ? "_f32" : "_int8");
                         });

}  // namespace
}  // namespace moewe::kernels
