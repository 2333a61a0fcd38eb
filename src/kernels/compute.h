// The arithmetic of a model on stored weight layouts, over a thread pool.
//
// Fixed order: the value of one output element depends only on its weight row and its own
// activation row, never on how many rows are computed together, how they are split over threads, or
// on the batch. (Exact on one instruction set and one activations mode, not across them.)
#ifndef MOEWE_KERNELS_COMPUTE_H_
#define MOEWE_KERNELS_COMPUTE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/byte_reader.h"
#include "platform/thread_pool.h"
#include "quant/dtype.h"

namespace moewe::kernels {

// A weight matrix [rows = out features, cols = in features] in its stored encoding, validated.
struct Matrix {
  DType dtype = DType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Bytes bytes;
  // kVbit: quant::VbitRowStarts, which finds a row in O(1); null = by adding up the widths before
  // it. Other dtypes need none.
  const uint64_t* row_starts = nullptr;

  bool empty() const { return rows == 0; }
};

// How activations enter a product with quantized weights. Float weights always take them in f32.
enum class Activations : uint8_t {
  kInt8,  // int8 per 32 values with an f32 scale, integer dot products
  kF32,   // weights dequantized to f32 in registers; matches the goldens
};

enum class GateFunction : uint8_t {
  kSilu,
  kGeluTanh,
  kClampedSwiglu,  // of gpt-oss, see Gate
};

// What becomes of gate g and up u. kClampedSwiglu: with g at most `limit` and u within +-limit,
// g * sigmoid(alpha * g) * (u + 1); the others: function(g) * u.
struct Gate {
  // Most functions need no more.
  Gate(GateFunction of) : function(of) {}  // NOLINT(google-explicit-constructor)
  Gate(GateFunction of, float its_alpha, float its_limit)
      : function(of), alpha(its_alpha), limit(its_limit) {}

  GateFunction function;
  float alpha = 0.0f;
  float limit = 0.0f;

  bool operator==(const Gate&) const = default;
};

// down( Gate(gate x, up x) ), with biases of all three where they are not null.
struct FfnMatrices {
  Matrix gate, up, down;
  // Neurons that are computed: rows of gate and up, columns of down, ascending. The result is that
  // of the others being zero after the gate. Empty = all of them. Must outlive the call.
  std::span<const uint32_t> live = {};
  const float* gate_bias = nullptr;  // [gate.rows], as up_bias
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [down.rows]
};

// One product of a region: y[n, w.rows] = x[n, w.cols] * w^T (+ bias[w.rows] if not null).
struct Projection {
  Matrix w;
  const float* bias = nullptr;
  float* y = nullptr;
  size_t y_stride = 0;  // floats between rows of y, >= w.rows
  // Rows of w to compute, ascending; the other elements of y are left as they are. Empty = all.
  std::span<const uint32_t> rows = {};
};

// One expert's share of a batch: which token rows go through it and where the result lands.
struct ExpertWork {
  FfnMatrices ffn;
  std::span<const uint32_t> token_rows;  // rows of x
  std::span<const uint32_t> out_rows;    // rows of y, one a token row; no row twice in a call
};

// Holds scratch memory that grows to its high-water mark: after warm-up no call allocates. One
// caller at a time; the pool must outlive it.
class Compute {
 public:
  Compute(ThreadPool* pool, Activations activations);
  ~Compute();

  ThreadPool& pool() const;
  Activations activations() const;

  // All projections share the input x[n, cols] (rows `x_stride` floats apart) and run in one
  // parallel region.
  void Project(std::span<const Projection> projections, const float* x, size_t n, size_t x_stride);

  // y[n, down.rows] = FFN(x[n, gate.cols]); rows are contiguous.
  void Ffn(const FfnMatrices& ffn, const Gate& gate, const float* x, size_t n, float* y);

  // Every expert's FFN over its token rows: y[out_row] = FFN_e(x[token_row]); y is overwritten in
  // those rows only. One parallel region per stage for all experts together.
  void RoutedFfn(std::span<const ExpertWork> work, const Gate& gate, const float* x, size_t hidden,
                 float* y);

  // Row `row` of an embedding matrix as f32 into out[cols].
  static void DecodeRow(const Matrix& matrix, uint64_t row, float* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "AVX2", "AVX-512 VNNI", ...: the instruction sets that the kernels use on this CPU.
const char* KernelIsaName();

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_COMPUTE_H_
