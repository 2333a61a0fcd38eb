// Any bytes as a tensor of any dtype and a small shape: refused, or decoded within its bytes, the
// same in one piece as row by row.
//
// Input: [u8 dtype id][u8 rows][u8 columns][u8 columns * 32][encoding].
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "moewe/error.h"
#include "quant/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using moewe::quant::Codec;
  if (size < 4) return 0;
  const Codec* codec = moewe::quant::FindCodec(static_cast<moewe::DType>(data[0]));
  if (codec == nullptr) return 0;
  const moewe::quant::MatrixShape shape{data[1], data[2] + uint64_t{32} * (data[3] % 16)};
  if (!codec->holds(shape, 2)) return 0;
  // Bytes of their own, so that reading past them is seen.
  const size_t length = size - 4;
  const auto copy = std::make_unique<uint8_t[]>(length);
  std::memcpy(copy.get(), data + 4, length);
  const moewe::Bytes bytes(copy.get(), length);
  try {
    codec->validate(bytes, shape, {"fuzz", ""});
  } catch (const moewe::Error&) {
    return 0;
  }
  const auto cols = static_cast<size_t>(shape.cols);
  std::vector<float> whole(static_cast<size_t>(shape.rows) * cols);
  codec->decode_rows(bytes, shape, 0, shape.rows, whole.data());
  std::vector<float> row(cols);
  for (uint64_t r = 0; r < shape.rows; ++r) {
    codec->decode_rows(bytes, shape, r, r + 1, row.data());
    const float* expected = whole.data() + static_cast<size_t>(r) * cols;
    if (cols > 0 && std::memcmp(row.data(), expected, cols * sizeof(float)) != 0) std::abort();
  }
  return 0;
}
