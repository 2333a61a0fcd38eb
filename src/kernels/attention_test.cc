#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/layout.h"
#include "kernels/reference.h"
#include "kernels/test_matrices.h"

namespace moewe::kernels {
namespace {

// A cache of `positions` rows in blocks.
struct Cache {
  Cache(size_t positions, uint32_t dim, uint32_t block_tokens, KvType type, uint32_t seed) {
    const size_t num_blocks = (positions + block_tokens - 1) / block_tokens;
    const uint32_t stride = dim + 3;
    const size_t row_bytes = KvRowBytes(type, stride);
    const std::vector<float> values = RandomFloats(num_blocks * block_tokens * stride, seed);
    for (size_t b = 0; b < num_blocks; ++b) {
      std::vector<uint8_t>& block = bytes.emplace_back(block_tokens * row_bytes);
      for (size_t row = 0; row < block_tokens; ++row) {
        StoreKvRow(type, &values[(b * block_tokens + row) * stride], stride,
                   block.data() + row * row_bytes);
      }
    }
    for (const auto& block : bytes) pointers.push_back(block.data());
    blocks = {pointers, block_tokens, stride, type};
  }
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<const void*> pointers;
  KvBlocks blocks;
};

void Compare(const AttentionParams& params, const Cache& keys, const Cache& values, size_t begin,
             size_t end, float q_scale) {
  const std::vector<float> q = RandomFloats(params.head_dim, 3, q_scale);
  std::vector<float> want(params.value_dim);
  std::vector<float> got(params.value_dim + 1, -5.0f);
  reference::AttendOne(params, q.data(), keys.blocks, values.blocks, begin, end, want.data());
  AttendOne(params, q.data(), keys.blocks, values.blocks, begin, end, got.data());
  EXPECT_EQ(got.back(), -5.0f);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-5) << begin << ".." << end << " of " << params.head_dim;
  }
}

TEST(KvRows, Q8IsWithinHalfAStepOfItsScaleAndKeepsWhatIsNoNumber) {
  for (const size_t n : {1, 31, 32, 33, 80, 128}) {
    std::vector<float> x = RandomFloats(n, 9, 3.0f);
    if (n > 33) std::fill_n(x.begin() + 32, 32, 0.0f);
    std::vector<uint8_t> row(KvRowBytes(KvType::kQ8, n) + 1, 0xCD);
    StoreKvRow(KvType::kQ8, x.data(), n, row.data());
    EXPECT_EQ(row.back(), 0xCD);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* group = row.data() + i / kKvGroup * kKvGroupBytes;
      const float scale = LoadF16(group);
      const float value = static_cast<float>(static_cast<int8_t>(group[2 + i % kKvGroup])) * scale;
      EXPECT_LE(std::abs(value - x[i]), 0.5f * scale + 127.0f * scale / 2048.0f)
          << i << " of " << n;
    }
  }
  std::vector<float> bad(64, 1.0f);
  bad[40] = std::numeric_limits<float>::infinity();
  std::vector<uint8_t> row(KvRowBytes(KvType::kQ8, 64));
  StoreKvRow(KvType::kQ8, bad.data(), 64, row.data());
  EXPECT_FALSE(std::isnan(LoadF16(row.data())));
  EXPECT_TRUE(std::isnan(LoadF16(row.data() + kKvGroupBytes)));
}

TEST(Attention, SeveralQueriesGiveWhatEachGivesAlone) {
  for (KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8}) {
    for (uint32_t dim : {1u, 17u, 80u, 128u}) {
      const Cache keys(100, dim, 16, type, 1);
      const Cache values(100, dim, 16, type, 2);
      const std::vector<float> sinks = RandomFloats(9, 4, 3.0f);
      const AttentionParams params{dim, dim, 0.3f, dim == 17 ? 20.0f : 0.0f,
                                   dim >= 80 ? sinks.data() : nullptr};
      for (size_t n = 1; n <= 9; ++n) {
        const std::vector<float> q = RandomFloats(n * dim, 3, 3.0f);
        std::vector<float> together(n * dim);
        std::vector<float> alone(n * dim);
        std::vector<const float*> qs;
        std::vector<float*> outs;
        for (size_t i = 0; i < n; ++i) {
          qs.push_back(&q[i * dim]);
          outs.push_back(&together[i * dim]);
          AttentionParams own = params;
          if (own.sinks != nullptr) own.sinks += i;
          AttendOne(own, qs[i], keys.blocks, values.blocks, 3, 97, &alone[i * dim]);
        }
        Attend(params, qs, keys.blocks, values.blocks, 3, 97, outs.data());
        ASSERT_EQ(together, alone) << n << " of " << dim;
      }
    }
  }
}

TEST(Attention, MatchesScalar) {
  for (KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8}) {
    for (uint32_t dim : {1u, 8u, 17u, 64u, 80u, 128u, 256u}) {
      for (uint32_t block : {1u, 16u, 32u, 100u}) {
        const uint32_t value_dim = dim == 80 ? 48 : dim;
        const Cache keys(230, dim, block, type, 1);
        const Cache values(230, value_dim, block, type, 2);
        AttentionParams params;
        params.head_dim = dim;
        params.value_dim = value_dim;
        params.scale = 1.0f / std::sqrt(static_cast<float>(dim));
        for (const auto& [begin, end] :
             {std::pair{0, 1}, {0, 5}, {0, 32}, {0, 33}, {7, 230}, {31, 97}, {100, 101}}) {
          for (float q_scale : {1.0f, 30.0f}) {
            Compare(params, keys, values, static_cast<size_t>(begin), static_cast<size_t>(end),
                    q_scale);
          }
        }
      }
    }
  }
}

TEST(Attention, SinkAndSoftCapMatchScalar) {
  const Cache keys(150, 64, 32, KvType::kF16, 1);
  const Cache values(150, 64, 32, KvType::kF16, 2);
  for (float sink : {-3.0f, 0.0f, 40.0f}) {
    for (float cap : {0.0f, 5.0f}) {
      AttentionParams params{64, 64, 0.3f, cap, &sink};
      Compare(params, keys, values, 0, 150, 4.0f);
      params.sinks = nullptr;
      Compare(params, keys, values, 0, 150, 4.0f);
    }
  }
}

TEST(Attention, OverNothingIsZero) {
  const Cache cache(32, 16, 32, KvType::kF32, 1);
  const std::vector<float> q(16, 1.0f);
  std::vector<float> out(16, 7.0f);
  AttendOne({16, 16, 1.0f, 0.0f, nullptr}, q.data(), cache.blocks, cache.blocks, 5, 5, out.data());
  for (float v : out) EXPECT_EQ(v, 0.0f);
}

TEST(Attention, NanStaysVisible) {
  const Cache cache(70, 16, 32, KvType::kF32, 1);
  std::vector<float> q(16, 1.0f);
  q[3] = NAN;
  std::vector<float> out(16);
  AttendOne({16, 16, 1.0f, 0.0f, nullptr}, q.data(), cache.blocks, cache.blocks, 0, 70, out.data());
  for (float v : out) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace moewe::kernels
