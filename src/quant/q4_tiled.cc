// q4_tiled: q4_block's values in 18-byte tiles [f16 scale][16 nibble bytes], one sequential stream
// a row.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

constexpr uint64_t kTileBytes = kScaleBytes + kGroupNibbles;

std::optional<uint64_t> Size(MatrixShape shape) {
  if (shape.cols % kGroup != 0 || !CheckedMul(shape.rows, shape.cols)) return std::nullopt;
  return CheckedMulAdd(CheckedMul(shape.rows, shape.cols / kGroup), kTileBytes, 0);
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const uint64_t tiles_per_row = shape.cols / kGroup;
  const uint8_t* tile = bytes.data() + row_begin * tiles_per_row * kTileBytes;
  const uint64_t count = (row_end - row_begin) * tiles_per_row;
  for (uint64_t t = 0; t < count; ++t, tile += kTileBytes, out += kGroup) {
    DecodeNibbles(tile + kScaleBytes, LoadF16(tile), out);
  }
}

void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  const uint64_t tiles_per_row = shape.cols / kGroup;
  uint8_t* tile = out + row_begin * tiles_per_row * kTileBytes;
  const uint64_t count = (row_end - row_begin) * tiles_per_row;
  for (uint64_t t = 0; t < count; ++t, tile += kTileBytes, values += kGroup) {
    StoreU16(tile, EncodeQ4Group(values, tile + kScaleBytes));
  }
}

}  // namespace

const Codec kQ4TiledCodec =
    RowWiseCodec<Size, DecodeRows, EncodeRows>(DType::kQ4Tiled, HoldsGroupedMatrix);

}  // namespace moewe::quant
