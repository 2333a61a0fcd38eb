// q1: one bit a weight, in 6-byte tiles [f16 scale][4 bytes of signs, LSB first]; w = +-scale, the
// scale being the mean magnitude of the group. For models trained to two levels.
#include "quant/codecs.h"
#include "quant/layout.h"
#include "quant/sign_tile.h"

namespace moewe::quant {
namespace {

std::optional<uint64_t> Size(MatrixShape shape) { return SignTilesSize(shape); }

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  DecodeSignTiles(bytes.data(), shape, row_begin, row_end, out);
}

template <bool kDiffuse>
void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  const uint64_t tiles = shape.cols / kGroup;
  uint8_t* tile = out + row_begin * tiles * kSignTileBytes;
  for (uint64_t row = row_begin; row < row_end; ++row) {
    float carry = 0.0f;
    for (uint64_t t = 0; t < tiles; ++t, tile += kSignTileBytes, values += kGroup) {
      EncodeSignTile(values, kNoOutliers, kDiffuse ? &carry : nullptr, tile);
    }
  }
}

using PlainEncoding = RowWiseEncoding<Size, EncodeRows<false>>;
using DiffusingEncoding = RowWiseEncoding<Size, EncodeRows<true>>;

std::unique_ptr<Encoding> Start(MatrixShape shape, const EncodeOptions& options) {
  if (options.diffuse) return std::make_unique<DiffusingEncoding>(shape, options);
  return std::make_unique<PlainEncoding>(shape, options);
}

}  // namespace

const Codec kQ1Codec = {
    .dtype = DType::kQ1,
    .holds = HoldsGroupedMatrix,
    .encoded_size = Size,
    .validate = ValidateSize<Size>,
    .decode_rows = DecodeRows,
    .encode = EncodeWhole<PlainEncoding>,
    .start = Start,
};

}  // namespace moewe::quant
