// Random matrices in stored encodings, for the tests of this layer.
#ifndef MOEWE_KERNELS_TEST_MATRICES_H_
#define MOEWE_KERNELS_TEST_MATRICES_H_

#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "kernels/compute.h"
#include "quant/codec.h"

namespace moewe::kernels {

struct StoredMatrix {
  std::vector<uint8_t> bytes;
  Matrix matrix;
};

inline std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
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
  quant::FindCodec(dtype)->encode(values, {rows, cols}, &m.bytes);
  m.bytes.shrink_to_fit();
  m.matrix = {dtype, rows, cols, Bytes(m.bytes)};
  return m;
}

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_TEST_MATRICES_H_
