// The integer kernels of every instruction set against the scalar definition: equal bit for bit.
#include "kernels/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/int8_emulated.h"
#include "kernels/reference.h"
#include "kernels/test_matrices.h"
#include "platform/cpu_features.h"

namespace moewe::kernels {
namespace {

struct Candidate {
  const char* name;
  const Int8Kernels* kernels;
};

std::vector<Candidate> Candidates() {
  std::vector<Candidate> list;
#if defined(__x86_64__)
  if (GetCpuFeatures().avx2) {
    list.push_back({"avx2", &kInt8Avx2});
    list.push_back({"avx512 emulated", &kInt8Avx512Emulated});
  }
  if (GetCpuFeatures().avx512_vnni) list.push_back({"avx512", &kInt8Avx512});
#endif
  return list;
}

// Rows of zeros, tiny, huge and ordinary activations.
std::vector<float> Inputs(size_t n, size_t cols, uint32_t seed) {
  std::vector<float> x = RandomFloats(n * cols, seed, 2.0f);
  for (size_t i = 0; i < cols; ++i) {
    if (n > 3) x[3 * cols + i] = 0;
    if (n > 4) x[4 * cols + i] *= 1e-38f;
    if (n > 5) x[5 * cols + i] *= 1e30f;
  }
  return x;
}

std::vector<float> Product(const Int8Kernels& kernels, const Matrix& w, const std::vector<float>& x,
                           size_t n, size_t tile) {
  const Input input = InputOf(w, Activations::kInt8);
  const size_t row_bytes = PreparedRow::Bytes(w.cols);
  std::vector<uint8_t> prepared(n * row_bytes + 64, 0xAB);
  std::vector<float> y(n * w.rows, -1.0f);
  std::vector<float> scratch(Int8ScratchFloats(w.cols) + 16);
  std::vector<const uint8_t*> xs(n);
  std::vector<float*> ys(n);
  const uint8_t* col_field = ColFieldOf(w);
  for (size_t t = 0; t < n; ++t) {
    uint8_t* row = prepared.data() + t * row_bytes;
    kernels.quantize(&x[t * w.cols], col_field, w.cols, 0, w.cols, input, row);
    xs[t] = row;
    ys[t] = &y[t * w.rows];
  }
  const Int8Fn kernel = kernels.For(input);
  for (size_t t = 0; t < n; t += tile) {
    kernel(w, 0, w.rows, &xs[t], std::min(tile, n - t), &ys[t], scratch.data(), {});
  }
  return y;
}

class Int8Dtypes : public ::testing::TestWithParam<DType> {
 protected:
  // A width that ends amid the kernels' steps.
  static uint32_t OddWidth() {
    return GetParam() == DType::kSmoeQ4 || GetParam() == DType::kSmoeQ2 ? 320 : 224;
  }
};

TEST_P(Int8Dtypes, EveryIsaEqualsScalarBitForBit) {
  const bool bytes = GetParam() == DType::kQ8Row || GetParam() == DType::kQ82f;
  std::vector<uint32_t> widths = {32, 64, 96, 128, 160, 192, 256, 288, 416, 768, 1088, 2048};
  if (bytes) widths.insert(widths.end(), {1, 31, 33, 63, 65, 127, 129, 200});
  for (uint32_t cols : widths) {
    if (InputOf({GetParam(), 1, cols, {}}, Activations::kInt8) == Input::kFloat) continue;
    for (uint32_t rows : {1u, 3u, 4u, 5u, 8u, 13u}) {
      const StoredMatrix m = MakeMatrix(GetParam(), rows, cols, cols * 7 + rows);
      const std::vector<float> x = Inputs(9, cols, rows);
      const std::vector<float> want = Product(kInt8Scalar, m.matrix, x, 9, 9);
      for (const Candidate& candidate : Candidates()) {
        const std::vector<float> got = Product(*candidate.kernels, m.matrix, x, 9, 9);
        ASSERT_EQ(got, want) << candidate.name << " " << rows << "x" << cols;
      }
    }
  }
}

TEST_P(Int8Dtypes, BatchDoesNotChangeAResult) {
  for (const Candidate& candidate : Candidates()) {
    const StoredMatrix m = MakeMatrix(GetParam(), 21, OddWidth(), 5);
    const std::vector<float> x = Inputs(37, OddWidth(), 6);
    const std::vector<float> one = Product(*candidate.kernels, m.matrix, x, 37, 1);
    for (size_t tile : {2u, 3u, 4u, 5u, 7u, 8u, 16u, 37u}) {
      ASSERT_EQ(Product(*candidate.kernels, m.matrix, x, 37, tile), one)
          << candidate.name << " tile " << tile;
    }
  }
}

TEST_P(Int8Dtypes, PartsOfAMatrixAndOfARowAreTheWhole) {
  const StoredMatrix m = MakeMatrix(GetParam(), 41, OddWidth(), 15);
  const Matrix& w = m.matrix;
  const std::vector<float> x = Inputs(1, w.cols, 16);
  std::vector<Candidate> all = Candidates();
  all.push_back({"scalar", &kInt8Scalar});
  for (const Candidate& candidate : all) {
    const std::vector<float> want = Product(*candidate.kernels, w, x, 1, 1);
    const Input input = InputOf(w, Activations::kInt8);
    std::vector<uint8_t> prepared(PreparedRow::Bytes(w.cols));
    const uint8_t* col_field = ColFieldOf(w);
    for (uint32_t col = 0; col < w.cols; col += 96) {
      const size_t count = std::min<size_t>(96, w.cols - col);
      candidate.kernels->quantize(&x[col], col_field == nullptr ? nullptr : col_field + col * 2,
                                  count, col / 32, w.cols, input, prepared.data());
    }
    std::vector<float> y(w.rows);
    std::vector<float> scratch(Int8ScratchFloats(w.cols) + 16);
    const uint8_t* xs[] = {prepared.data()};
    const Int8Fn kernel = candidate.kernels->For(input);
    for (const auto& [begin, end] : {std::pair{0u, 7u}, {7u, 8u}, {8u, 35u}, {35u, 41u}}) {
      float* ys[] = {&y[begin]};
      kernel(w, begin, end, xs, 1, ys, scratch.data(), {});
    }
    EXPECT_EQ(y, want) << candidate.name;
  }
}

TEST_P(Int8Dtypes, StaysNearTheFloatProduct) {
  const StoredMatrix m = MakeMatrix(GetParam(), 16, 512, 9);
  const std::vector<float> x = RandomFloats(512, 10);
  const std::vector<float> got = Product(kInt8Scalar, m.matrix, x, 1, 1);
  std::vector<float> row(512);
  for (uint32_t r = 0; r < 16; ++r) {
    reference::DecodeRow(m.matrix, r, row.data());
    double norm = 0;
    for (float v : row) norm += double{v} * double{v};
    // Rounding errors of activations are at most absmax / 254 each, about 0.012 here.
    EXPECT_NEAR(got[r], reference::Dot(row.data(), x.data(), 512), 0.03 * std::sqrt(norm) + 1e-6);
  }
}

TEST_P(Int8Dtypes, NanAndInfinityGiveNan) {
  const StoredMatrix m = MakeMatrix(GetParam(), 5, OddWidth(), 11);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = RandomFloats(OddWidth(), 12);
    x[40] = bad;
    std::vector<Candidate> all = Candidates();
    all.push_back({"scalar", &kInt8Scalar});
    for (const Candidate& candidate : all) {
      for (float v : Product(*candidate.kernels, m.matrix, x, 1, 1)) {
        EXPECT_TRUE(std::isnan(v)) << candidate.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Int8Dtypes,
                         ::testing::Values(DType::kQ8Row, DType::kQ4Block, DType::kQ82f,
                                           DType::kQ4Tiled, DType::kQ4tp, DType::kVbit,
                                           DType::kVbitRo, DType::kQ1, DType::kQ1s, DType::kQ1t,
                                           DType::kSmoeQ4, DType::kSmoeQ2),
                         [](const auto& param_info) {
                           return std::string(DTypeName(param_info.param));
                         });

TEST(Int8, ExtremeWeightsAndActivationsAreExact) {
  // All of -128 and 127 against +-127: the largest sums there are.
  constexpr uint32_t kCols = 256;
  std::vector<uint8_t> bytes(2 * kCols);
  for (uint32_t i = 0; i < kCols; ++i) {
    bytes[i] = 0x80;
    bytes[kCols + i] = i % 2 == 0 ? 0x7F : 0x80;
  }
  for (int row = 0; row < 2; ++row) bytes.insert(bytes.end(), {0x00, 0x3C});  // scale 1
  const Matrix m{DType::kQ8Row, 2, kCols, Bytes(bytes)};
  std::vector<float> x(kCols);
  for (uint32_t i = 0; i < kCols; ++i) x[i] = i % 2 == 0 ? 127.0f : -127.0f;
  std::vector<Candidate> all = Candidates();
  all.push_back({"scalar", &kInt8Scalar});
  for (const Candidate& candidate : all) {
    const std::vector<float> y = Product(*candidate.kernels, m, x, 1, 1);
    EXPECT_EQ(y[0], 0.0f) << candidate.name;
    EXPECT_EQ(y[1], 127.0f * 255.0f * 128.0f) << candidate.name;
  }
}

TEST(Int8, ExtremeCodesOfEveryWidthAreExact) {
  // Rows of all ones and of all zeros, 3 to 8 bits, against +-127: the largest sums there are. And
  // every byte as five ternary digits, also the 13 that no encoder makes.
  std::vector<Candidate> all = Candidates();
  all.push_back({"scalar", &kInt8Scalar});
  constexpr uint32_t kCols = 256;
  std::vector<float> x(2 * kCols, 127.0f);
  for (uint32_t i = 0; i < kCols; ++i) x[i] = i % 3 == 0 ? -127.0f : 127.0f;
  for (int byte : {0xFF, 0x00}) {
    StoredMatrix m = MakeMatrix(DType::kVbitRo, 10, kCols, 1);
    for (size_t i = 0; i < size_t{10} * 8; ++i) {  // scales of 1
      m.bytes[10 + 2 * i] = 0;
      m.bytes[11 + 2 * i] = 0x3C;
    }
    const uint64_t packed = quant::VbitRoRowStart(m.matrix.bytes, {10, kCols}, 0);
    std::fill(m.bytes.begin() + static_cast<ptrdiff_t>(packed), m.bytes.end(),
              static_cast<uint8_t>(byte));
    for (const Candidate& candidate : all) {
      const std::vector<float> y = Product(*candidate.kernels, m.matrix, x, 2, 2);
      for (uint32_t row = 0; row < 10; ++row) {
        const int middle = (1 << (m.bytes[row] - 1)) - 1;
        const int weight = byte == 0 ? -middle : middle + 1;
        EXPECT_EQ(y[row], static_cast<float>(weight * 127 * (256 - 2 * 86))) << candidate.name;
        EXPECT_EQ(y[10 + row], static_cast<float>(weight * 127 * 256)) << candidate.name;
      }
    }
  }
  StoredMatrix m = MakeMatrix(DType::kQ1t, 40, kCols, 2);
  for (size_t i = 0; i < size_t{40} * 8; ++i) {
    for (size_t k = 2; k < 9; ++k) m.bytes[i * 9 + k] = static_cast<uint8_t>(i * 7 + k - 2);
  }
  const std::vector<float> input = RandomFloats(kCols, 3);
  const std::vector<float> want = Product(kInt8Scalar, m.matrix, input, 1, 1);
  for (const Candidate& candidate : Candidates()) {
    EXPECT_EQ(Product(*candidate.kernels, m.matrix, input, 1, 1), want) << candidate.name;
  }
}

TEST(Int8, ReferenceRowsEqualTheCodecs) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBf16, DType::kQ8Row, DType::kQ4Block,
                      DType::kQ82f, DType::kQ4Tiled, DType::kQ4tp}) {
    const StoredMatrix m = MakeMatrix(dtype, 7, 160, 3);
    std::vector<float> want(160);
    std::vector<float> got(160);
    for (uint32_t row = 0; row < 7; ++row) {
      quant::FindCodec(dtype)->decode_rows(m.matrix.bytes, {7, 160}, row, row + 1, want.data());
      reference::DecodeRow(m.matrix, row, got.data());
      EXPECT_EQ(got, want) << DTypeName(dtype) << " row " << row;
    }
  }
}

}  // namespace
}  // namespace moewe::kernels
