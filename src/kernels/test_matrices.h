// Random matrices in stored encodings, for the tests of this layer.
#ifndef MOEWE_KERNELS_TEST_MATRICES_H_
#define MOEWE_KERNELS_TEST_MATRICES_H_

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "kernels/compute.h"
#include "quant/codec.h"
#include "quant/vbit.h"

namespace moewe::kernels {

struct StoredMatrix {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> row_starts;
  Matrix matrix;
};

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

// Adds an entry to every other row of a q1t matrix, whose encoder makes none.
inline void AddTernaryOverlay(StoredMatrix* m) {
  const Matrix& w = m->matrix;
  std::vector<uint8_t> entries;
  uint8_t* pointers = m->bytes.data() + size_t{w.rows} * (w.cols / 32) * 9;
  for (uint32_t row = 0; row < w.rows; ++row) {
    if (row % 2 == 1) {
      const uint32_t col = row * 37 % w.cols;
      entries.insert(entries.end(), {static_cast<uint8_t>(col), static_cast<uint8_t>(col >> 8),
                                     static_cast<uint8_t>(row * 29), 0x34});  // f16 about 0.3
    }
    const auto count = static_cast<uint32_t>(entries.size() / 4);
    std::memcpy(pointers + (size_t{row} + 1) * 4, &count, 4);
  }
  m->bytes.insert(m->bytes.end(), entries.begin(), entries.end());
}

// Rows of all widths in turn.
inline void EncodeVbit(const std::vector<float>& values, StoredMatrix* m) {
  const Matrix& w = m->matrix;
  std::vector<uint8_t> widths(w.rows);
  for (uint32_t r = 0; r < w.rows; ++r) widths[r] = quant::kVbitWidths[(r + w.cols) % 5];
  quant::EncodeOptions options;
  options.row_bits = widths;
  const auto encoding = quant::FindCodec(w.dtype)->start({w.rows, w.cols}, options);
  m->bytes.resize(encoding->size());
  encoding->Begin(m->bytes.data());
  encoding->EncodeRows(values.data(), 0, w.rows, m->bytes.data());
  m->row_starts = quant::VbitRowStarts(w.dtype, m->bytes, {w.rows, w.cols});
}

// Encoded by the dtype's codec. The vector is exactly as long as the encoding, so that a sanitizer
// sees any read past it.
inline StoredMatrix MakeMatrix(DType dtype, uint32_t rows, uint32_t cols, uint32_t seed,
                               float scale = 0.05f) {
  StoredMatrix m;
  std::vector<float> values = RandomFloats(size_t{rows} * cols, seed, scale);
  // A row and a group of zeros, and one large value.
  for (size_t i = 0; i < cols && rows > 2; ++i) values[cols + i] = 0;
  values[values.size() / 2] = 4.0f;
  m.matrix = {dtype, rows, cols, {}};
  if (dtype == DType::kVbit || dtype == DType::kVbitRo) {
    EncodeVbit(values, &m);
  } else {
    quant::FindCodec(dtype)->encode(values, {rows, cols}, &m.bytes);
  }
  if (dtype == DType::kQ1t) AddTernaryOverlay(&m);
  m.bytes.shrink_to_fit();
  m.matrix.bytes = Bytes(m.bytes);
  if (!m.row_starts.empty()) m.matrix.row_starts = m.row_starts.data();
  return m;
}

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_TEST_MATRICES_H_
