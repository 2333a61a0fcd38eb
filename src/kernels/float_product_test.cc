#include "kernels/float_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/reference.h"
#include "kernels/test_matrices.h"

namespace moewe::kernels {
namespace {

constexpr DType kProductDtypes[] = {DType::kF32,     DType::kF16,   DType::kBf16,    DType::kQ8Row,
                                    DType::kQ4Block, DType::kQ82f,  DType::kQ4Tiled, DType::kQ4tp,
                                    DType::kSmoeQ4,  DType::kSmoeQ2};

bool Holds(DType dtype, uint32_t rows, uint32_t cols) {
  return quant::FindCodec(dtype)->holds({rows, cols}, 2);
}

TEST(FloatProduct, DecodesEveryDtypeAsItsCodecDoes) {
  for (DType dtype : kProductDtypes) {
    for (uint32_t cols : {1u, 7u, 9u, 15u, 32u, 40u, 96u, 160u, 288u, 1000u}) {
      if (!Holds(dtype, 7, cols)) continue;
      const StoredMatrix m = MakeMatrix(dtype, 7, cols, 3);
      std::vector<float> want(7 * cols);
      quant::FindCodec(dtype)->decode_rows(m.matrix.bytes, {7, cols}, 0, 7, want.data());
      std::vector<float> got(7 * cols + 1, -5.0f);
      DecodeRows(m.matrix, 0, 7, got.data());
      EXPECT_EQ(got.back(), -5.0f);
      got.pop_back();
      EXPECT_EQ(got, want) << DTypeName(dtype) << " " << cols;
      std::vector<float> middle(2 * cols);
      DecodeRows(m.matrix, 3, 5, middle.data());
      EXPECT_EQ(std::memcmp(middle.data(), &want[3 * cols], middle.size() * 4), 0);
    }
  }
}

TEST(FloatProduct, EveryHalfDecodes) {
  for (DType dtype : {DType::kF16, DType::kBf16}) {
    std::vector<uint8_t> bytes(65536 * 2 + 1);
    for (uint32_t i = 0; i < 65536; ++i) {  // at an odd address, as a file may have it
      bytes[1 + 2 * i] = static_cast<uint8_t>(i);
      bytes[2 + 2 * i] = static_cast<uint8_t>(i >> 8);
    }
    const Matrix m{dtype, 1, 65536, Bytes(bytes).subspan(1)};
    std::vector<float> want(65536);
    std::vector<float> got(65536);
    reference::DecodeRow(m, 0, want.data());
    DecodeRows(m, 0, 1, got.data());
    for (size_t i = 0; i < 65536; ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        EXPECT_EQ(got[i], want[i]) << i;
      }
    }
  }
}

std::vector<std::vector<float>> Product(const Matrix& w, uint32_t begin, uint32_t end,
                                        const std::vector<float>& x, size_t n) {
  std::vector<const uint8_t*> xs(n);
  std::vector<std::vector<float>> y(n, std::vector<float>(end - begin, -1.0f));
  std::vector<float*> ys(n);
  for (size_t t = 0; t < n; ++t) {
    xs[t] = reinterpret_cast<const uint8_t*>(&x[t * w.cols]);
    ys[t] = y[t].data();
  }
  std::vector<float> scratch(FloatScratchFloats(w.cols));
  FloatProduct(w, begin, end, xs.data(), n, ys.data(), scratch.data());
  return y;
}

TEST(FloatProduct, MatchesScalarWhateverTheBatchAndTheRows) {
  for (DType dtype : kProductDtypes) {
    for (uint32_t cols : {1u, 5u, 8u, 31u, 32u, 96u, 200u, 288u, 2048u}) {
      if (!Holds(dtype, 13, cols)) continue;
      const StoredMatrix m = MakeMatrix(dtype, 13, cols, 7);
      const std::vector<float> x = RandomFloats(8 * cols, 8);
      const auto all = Product(m.matrix, 0, 13, x, 8);
      std::vector<float> row(cols);
      for (uint32_t r = 0; r < 13; ++r) {
        reference::DecodeRow(m.matrix, r, row.data());
        for (size_t t = 0; t < 8; ++t) {
          double magnitude = 1e-9;
          for (size_t i = 0; i < cols; ++i) magnitude += std::abs(double{row[i]} * x[t * cols + i]);
          EXPECT_NEAR(all[t][r], reference::Dot(row.data(), &x[t * cols], cols), 3e-7 * magnitude)
              << DTypeName(dtype) << " " << cols;
        }
      }
      for (size_t n = 1; n < 8; ++n) {
        const auto few = Product(m.matrix, 2, 11, x, n);
        for (size_t t = 0; t < n; ++t) {
          for (uint32_t r = 2; r < 11; ++r) ASSERT_EQ(few[t][r - 2], all[t][r]) << DTypeName(dtype);
        }
      }
    }
  }
}

TEST(FloatProduct, NanAndInfinityReachOnlyTheirRows) {
  std::vector<float> values(6 * 40, 0.5f);
  values[40 + 39] = NAN;
  values[2 * 40] = INFINITY;
  std::vector<uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const Matrix m{DType::kF32, 6, 40, Bytes(bytes)};
  const std::vector<float> x(40, 1.0f);
  const auto y = Product(m, 0, 6, x, 1)[0];
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], INFINITY);
  for (size_t r : {0u, 3u, 4u, 5u}) EXPECT_EQ(y[r], 20.0f);
}

}  // namespace
}  // namespace moewe::kernels
