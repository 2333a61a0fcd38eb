#include "quant/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "moewe/error.h"

namespace moewe::quant {
namespace {

constexpr uint8_t kNan = 0x7F;  // with either sign

std::array<float, 256> MakeTable() {
  std::array<float, 256> table{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = (byte >> 3) & 0xF;
    const int mantissa = byte & 7;
    // Subnormal: no implied one, and the exponent of the least normal.
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((byte & kNan) == kNan) value = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<size_t>(byte)] = (byte & 0x80) != 0 ? -value : value;
  }
  return table;
}

const std::array<float, 256>& Table() {
  static const std::array<float, 256> table = MakeTable();
  return table;
}

uint64_t Blocks(uint64_t size, uint64_t block) {
  return size / block + (size % block != 0 ? 1 : 0);
}

}  // namespace

MatrixShape BlockScales::Grid(MatrixShape weights) const {
  return {Blocks(weights.rows, block_rows), Blocks(weights.cols, block_cols)};
}

float Fp8ToF32(uint8_t byte) { return Table()[byte]; }

void CheckFp8Layout(Bytes bytes, MatrixShape shape, const BlockScales& scales, const Where& where) {
  if (bytes.size() != shape.rows * shape.cols) {
    throw Error(
        ErrorCode::kBounds,
        fmt::format("{} bytes stored, the shape needs {}", bytes.size(), shape.rows * shape.cols),
        where);
  }
  const MatrixShape grid = scales.Grid(shape);
  const std::vector<float> values = Decode(scales.dtype, scales.bytes, grid, where);
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float scale) { return !std::isfinite(scale); });
  if (bad == values.end()) return;
  const auto block = static_cast<uint64_t>(bad - values.begin());
  throw Error(ErrorCode::kParse,
              fmt::format("the scale of block [{}, {}] is not a finite number", block / grid.cols,
                          block % grid.cols),
              where);
}

void CheckFp8Values(Bytes bytes, MatrixShape shape, const Where& where) {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](uint8_t byte) { return (byte & kNan) == kNan; });
  if (bad == bytes.end()) return;
  const auto at = static_cast<uint64_t>(bad - bytes.begin());
  Where byte = where;
  if (byte.offset) byte.offset = *byte.offset + at;
  throw Error(ErrorCode::kParse,
              fmt::format("element [{}, {}] is 0x{:02X}, which is no number in FP8 (E4M3)",
                          at / shape.cols, at % shape.cols, *bad),
              byte);
}

void DecodeFp8Rows(Bytes bytes, MatrixShape shape, const BlockScales& scales, uint64_t row_begin,
                   uint64_t row_end, float* out) {
  const std::array<float, 256>& table = Table();
  const Codec& codec = *FindCodec(scales.dtype);
  const MatrixShape grid = scales.Grid(shape);
  std::vector<float> of_row(grid.cols);
  uint64_t decoded = UINT64_MAX;  // the row of blocks that of_row is of
  for (uint64_t row = row_begin; row < row_end; ++row) {
    const uint64_t block_row = row / scales.block_rows;
    if (block_row != decoded) {
      codec.decode_rows(scales.bytes, grid, block_row, block_row + 1, of_row.data());
      decoded = block_row;
    }
    const uint8_t* from = bytes.data() + row * shape.cols;
    for (uint64_t begin = 0; begin < shape.cols; begin += scales.block_cols) {
      const uint64_t end = std::min<uint64_t>(begin + scales.block_cols, shape.cols);
      const float scale = of_row[begin / scales.block_cols];
      for (uint64_t col = begin; col < end; ++col) *out++ = table[from[col]] * scale;
    }
  }
}

}  // namespace moewe::quant
