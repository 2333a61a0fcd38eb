// Compute against products made one by one from the layer's definitions.
#include "kernels/compute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/int8.h"
#include "kernels/reference.h"
#include "kernels/test_matrices.h"

namespace moewe::kernels {
namespace {

constexpr DType kDtypes[] = {DType::kF32,     DType::kF16,  DType::kBf16,    DType::kQ8Row,
                             DType::kQ4Block, DType::kQ82f, DType::kQ4Tiled, DType::kQ4tp,
                             DType::kVbit,    DType::kQ1s,  DType::kSmoeQ4,  DType::kSmoeQ2};

// Rows of w times one activation row, from the scalar definitions.
std::vector<float> ScalarProduct(const Matrix& w, Activations activations, const float* x) {
  std::vector<float> y(w.rows);
  const Input input = InputOf(w, activations);
  if (input == Input::kFloat) {
    std::vector<float> row(w.cols);
    for (uint32_t r = 0; r < w.rows; ++r) {
      reference::DecodeRow(w, r, row.data());
      y[r] = static_cast<float>(reference::Dot(row.data(), x, w.cols));
    }
    return y;
  }
  std::vector<uint8_t> prepared(PreparedRow::Bytes(w.cols));
  kInt8Scalar.quantize(x, ColFieldOf(w), w.cols, 0, w.cols, input, prepared.data());
  const uint8_t* xs[] = {prepared.data()};
  float* ys[] = {y.data()};
  kInt8Scalar.For(input)(w, 0, w.rows, xs, 1, ys, nullptr, {});
  return y;
}

std::vector<float> ScalarFfn(const FfnMatrices& ffn, Activations activations, const Gate& gate,
                             const float* x) {
  const auto product = [&](const Matrix& w, const float* bias, const float* input) {
    std::vector<float> y = ScalarProduct(w, activations, input);
    for (size_t i = 0; bias != nullptr && i < y.size(); ++i) y[i] += bias[i];
    return y;
  };
  std::vector<float> g = product(ffn.gate, ffn.gate_bias, x);
  const std::vector<float> u = product(ffn.up, ffn.up_bias, x);
  for (size_t i = 0; i < g.size(); ++i) g[i] = reference::Activate(gate, g[i], u[i]);
  return product(ffn.down, ffn.down_bias, g.data());
}

// Equal where the integer rule defines every bit, else near in f32.
void ExpectRow(const float* got, const std::vector<float>& want, bool exact,
               const std::string& what) {
  double norm = 0;
  for (float v : want) norm = std::max(norm, std::abs(double{v}));
  for (size_t i = 0; i < want.size(); ++i) {
    if (exact) {
      ASSERT_EQ(got[i], want[i]) << what << " " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], 2e-6 * norm + 2e-6) << what << " " << i;
    }
  }
}

struct Mode {
  Activations activations;
  int threads;
};

class ComputeModes : public ::testing::TestWithParam<Mode> {
 protected:
  ThreadPool pool_{GetParam().threads};
  Compute compute_{&pool_, GetParam().activations};
  Activations activations() const { return GetParam().activations; }
};

TEST_P(ComputeModes, ProjectsEveryDtypeTogether) {
  for (const auto& [rows, cols] : {std::pair{37u, 96u}, {130u, 320u}, {1u, 64u}}) {
    std::vector<StoredMatrix> matrices;
    for (DType dtype : kDtypes) matrices.push_back(MakeMatrix(dtype, rows, cols, rows + cols));
    const std::vector<float> bias = RandomFloats(rows, 3);
    for (size_t n : {1u, 3u, 70u}) {
      const size_t stride = cols + 5;
      const std::vector<float> x = RandomFloats(n * stride, 4);
      std::vector<std::vector<float>> ys(matrices.size());
      std::vector<Projection> projections;
      for (size_t i = 0; i < matrices.size(); ++i) {
        ys[i].assign(n * (rows + 3), -7.0f);
        projections.push_back(
            {matrices[i].matrix, i % 2 == 0 ? bias.data() : nullptr, ys[i].data(), rows + 3});
      }
      compute_.Project(projections, x.data(), n, stride);
      for (size_t i = 0; i < matrices.size(); ++i) {
        const Matrix& w = matrices[i].matrix;
        for (size_t t = 0; t < n; ++t) {
          std::vector<float> want = ScalarProduct(w, activations(), &x[t * stride]);
          for (size_t r = 0; r < rows && i % 2 == 0; ++r) want[r] += bias[r];
          ExpectRow(&ys[i][t * (rows + 3)], want, InputOf(w, activations()) != Input::kFloat,
                    std::string(DTypeName(w.dtype)));
          for (size_t r = rows; r < rows + 3; ++r) ASSERT_EQ(ys[i][t * (rows + 3) + r], -7.0f);
        }
      }
    }
  }
}

TEST_P(ComputeModes, BlocksAcrossRowsOfQ4AreStillComputed) {
  const StoredMatrix m = MakeMatrix(DType::kQ4Block, 9, 40, 1);
  const std::vector<float> x = RandomFloats(40, 2);
  std::vector<float> y(9);
  const Projection p{m.matrix, nullptr, y.data(), 9};
  compute_.Project({&p, 1}, x.data(), 1, 40);
  ExpectRow(y.data(), ScalarProduct(m.matrix, activations(), x.data()), false, "q4_block 9x40");
}

struct StoredFfn {
  StoredMatrix gate, up, down;
  FfnMatrices matrices() const { return {gate.matrix, up.matrix, down.matrix}; }
};

StoredFfn MakeFfn(DType in, DType out, uint32_t hidden, uint32_t width, uint32_t seed) {
  return {MakeMatrix(in, width, hidden, seed), MakeMatrix(in, width, hidden, seed + 1),
          MakeMatrix(out, hidden, width, seed + 2)};
}

// The integer kernels are exact but the gate function is not: a hidden value that differs in its
// last bit may round to another int8.
void ExpectFfnRow(const float* got, const std::vector<float>& want, const std::string& what) {
  double norm = 0;
  for (float v : want) norm += double{v} * double{v};
  const double bound = 0.01 * std::sqrt(norm / static_cast<double>(want.size())) + 1e-9;
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << what << " " << i;
}

TEST_P(ComputeModes, FfnOfEveryDtype) {
  for (DType dtype : kDtypes) {
    for (DType down : {dtype, DType::kF16, DType::kQ8Row}) {
      for (const Gate& gate : {Gate(GateFunction::kSilu), Gate(GateFunction::kGeluTanh),
                               Gate(GateFunction::kClampedSwiglu, 1.702f, 7.0f)}) {
        const StoredFfn ffn = MakeFfn(dtype, down, 96, 160, 20);
        const std::vector<float> x = RandomFloats(5 * 96, 6, 4.0f);
        std::vector<float> y(5 * 96);
        compute_.Ffn(ffn.matrices(), gate, x.data(), 5, y.data());
        for (size_t t = 0; t < 5; ++t) {
          ExpectFfnRow(&y[t * 96], ScalarFfn(ffn.matrices(), activations(), gate, &x[t * 96]),
                       std::string(DTypeName(dtype)));
        }
      }
    }
  }
}

TEST_P(ComputeModes, FfnWithBiases) {
  constexpr uint32_t kHidden = 96;
  constexpr uint32_t kWidth = 320;  // more rows than are computed at once
  const std::vector<float> gate_bias = RandomFloats(kWidth, 7, 3.0f);
  const std::vector<float> up_bias = RandomFloats(kWidth, 8, 3.0f);
  const std::vector<float> down_bias = RandomFloats(kHidden, 9, 3.0f);
  const Gate gate(GateFunction::kClampedSwiglu, 1.702f, 2.5f);
  for (DType dtype : {DType::kF32, DType::kQ8Row, DType::kQ4tp}) {
    const StoredFfn stored = MakeFfn(dtype, dtype, kHidden, kWidth, 20);
    const std::vector<float> x = RandomFloats(5 * kHidden, 6, 1.0f);
    std::vector<float> plain(5 * kHidden);
    compute_.Ffn(stored.matrices(), gate, x.data(), 5, plain.data());
    // Each bias alone, then all.
    for (uint32_t which = 1; which < 8; ++which) {
      FfnMatrices ffn = stored.matrices();
      if (which & 1) ffn.gate_bias = gate_bias.data();
      if (which & 2) ffn.up_bias = up_bias.data();
      if (which & 4) ffn.down_bias = down_bias.data();
      std::vector<float> y(5 * kHidden);
      compute_.Ffn(ffn, gate, x.data(), 5, y.data());
      EXPECT_NE(y, plain) << which;
      for (size_t t = 0; t < 5; ++t) {
        ExpectFfnRow(&y[t * kHidden], ScalarFfn(ffn, activations(), gate, &x[t * kHidden]),
                     std::string(DTypeName(dtype)));
      }
      // A step's rows in another order, as experts take them.
      const std::vector<uint32_t> rows{4, 0, 2};
      const ExpertWork work{ffn, rows, rows};
      std::vector<float> routed(5 * kHidden);
      compute_.RoutedFfn({&work, 1}, gate, x.data(), kHidden, routed.data());
      for (const uint32_t row : rows) {
        for (uint32_t i = row * kHidden; i < (row + 1) * kHidden; ++i) ASSERT_EQ(routed[i], y[i]);
      }
    }
  }
}

TEST_P(ComputeModes, RoutedFfnIsEachExpertsFfnBitForBit) {
  constexpr uint32_t kHidden = 64;
  constexpr size_t kTokens = 90;
  std::vector<StoredFfn> experts;
  for (uint32_t e = 0; e < std::size(kDtypes); ++e) {
    experts.push_back(MakeFfn(kDtypes[e], kDtypes[e], kHidden, e % 2 == 0 ? 96 : 288, e * 3));
  }
  const std::vector<float> x = RandomFloats(kTokens * kHidden, 6, 4.0f);
  // Expert e takes every (e + 1)th token.
  std::vector<std::vector<uint32_t>> tokens(experts.size());
  std::vector<std::vector<uint32_t>> outs(experts.size());
  std::vector<ExpertWork> work;
  uint32_t next = 0;
  for (uint32_t e = 0; e < experts.size(); ++e) {
    for (uint32_t t = 0; t < kTokens; t += e + 1) {
      tokens[e].push_back(t);
      outs[e].push_back(next++);
    }
    work.push_back({experts[e].matrices(), tokens[e], outs[e]});
  }
  std::vector<float> y(next * kHidden, NAN);
  compute_.RoutedFfn(work, GateFunction::kSilu, x.data(), kHidden, y.data());
  ThreadPool one_thread(1);
  Compute alone(&one_thread, activations());
  std::vector<float> want(kHidden);
  for (uint32_t e = 0; e < experts.size(); ++e) {
    for (size_t i = 0; i < tokens[e].size(); ++i) {
      alone.Ffn(experts[e].matrices(), GateFunction::kSilu, &x[tokens[e][i] * kHidden], 1,
                want.data());
      const std::vector<float> got(&y[outs[e][i] * kHidden], &y[outs[e][i] * kHidden] + kHidden);
      ASSERT_EQ(got, want) << DTypeName(kDtypes[e]) << " token " << tokens[e][i];
    }
  }
}

TEST_P(ComputeModes, BatchDoesNotChangeAResult) {
  for (DType dtype : kDtypes) {
    const StoredMatrix m = MakeMatrix(dtype, 75, 224, 5);
    const std::vector<float> x = RandomFloats(150 * 224, 6);
    std::vector<float> together(150 * 75);
    std::vector<float> one(75);
    const Projection all{m.matrix, nullptr, together.data(), 75};
    compute_.Project({&all, 1}, x.data(), 150, 224);
    for (size_t t = 0; t < 150; ++t) {
      const Projection single{m.matrix, nullptr, one.data(), 75};
      compute_.Project({&single, 1}, &x[t * 224], 1, 224);
      const std::vector<float> got(&together[t * 75], &together[t * 75] + 75);
      ASSERT_EQ(got, one) << DTypeName(dtype) << " row " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ComputeModes,
                         ::testing::Values(Mode{Activations::kInt8, 1}, Mode{Activations::kInt8, 3},
                                           Mode{Activations::kF32, 1}, Mode{Activations::kF32, 3}),
                         [](const auto& mode) {
                           return std::string(mode.param.activations == Activations::kInt8
                                                  ? "int8"
                                                  : "f32") +
                                  "_threads" + std::to_string(mode.param.threads);
                         });

}  // namespace
}  // namespace moewe::kernels
