// q1t: ternary weights {-s, 0, +s}, five to a byte, and the few largest weights apart.
//
//   [9-byte tiles: f16 scale, 7 bytes of base-3 codes][u32 row_ptr: rows + 1][{u16 column, f16
//   value}]
//
// A byte holds five codes, the first times 1, the next times 3, ...; the seventh byte holds two.
// Code 0 is 0, 1 is +s, 2 is -s. Row r's outliers are entries [row_ptr[r], row_ptr[r + 1]).
#include <fmt/format.h>

#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

constexpr uint64_t kCodesPerByte = 5;
constexpr uint64_t kCodeBytes = 7;
constexpr uint64_t kTileBytes = kScaleBytes + kCodeBytes;
constexpr uint64_t kPointerBytes = 4;
constexpr uint64_t kColumnBytes = 2;
constexpr uint64_t kEntryBytes = kColumnBytes + kScaleBytes;

// A column has 16 bits.
bool Holds(MatrixShape shape, size_t ndim) {
  return HoldsGroupedMatrix(shape, ndim) && shape.cols <= 0xFFFF;
}

std::optional<uint64_t> NoFixedSize(MatrixShape) { return std::nullopt; }

uint64_t PointersOffset(MatrixShape shape) {
  return shape.rows * (shape.cols / kGroup) * kTileBytes;
}
uint64_t EntriesOffset(MatrixShape shape) {
  return PointersOffset(shape) + (shape.rows + 1) * kPointerBytes;
}

std::optional<uint64_t> CheckedEntriesOffset(MatrixShape shape) {
  if (shape.cols % kGroup != 0) return std::nullopt;
  const std::optional<uint64_t> row = CheckedMulAdd(shape.cols / kGroup, kTileBytes, kPointerBytes);
  return row ? CheckedMulAdd(CheckedMul(*row, shape.rows), 1, kPointerBytes) : std::nullopt;
}

uint64_t RowPointer(Bytes bytes, MatrixShape shape, uint64_t row) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + PointersOffset(shape) + row * kPointerBytes, sizeof(value));
  return value;
}

void Validate(Bytes bytes, MatrixShape shape, const Where& where) {
  const std::optional<uint64_t> fixed = CheckedEntriesOffset(shape);
  if (!fixed || *fixed > bytes.size()) ThrowSizeMismatch(bytes.size(), fixed, where);
  uint64_t before = 0;
  for (uint64_t row = 0; row <= shape.rows; ++row) {
    const uint64_t pointer = RowPointer(bytes, shape, row);
    if (pointer < before || (row == 0 && pointer != 0)) {
      throw Error(ErrorCode::kParse,
                  fmt::format("row pointer {} is {}, after {}", row, pointer, before), where);
    }
    before = pointer;
  }
  const uint64_t expected = *fixed + before * kEntryBytes;  // before < 2^32
  if (expected != bytes.size()) ThrowSizeMismatch(bytes.size(), expected, where);
  for (uint64_t i = 0; i < before; ++i) {
    const uint16_t column = LoadU16(bytes.data() + *fixed + i * kEntryBytes);
    if (column >= shape.cols) {
      throw Error(ErrorCode::kBounds,
                  fmt::format("overlay entry {} is for column {} of {}", i, column, shape.cols),
                  where);
    }
  }
}

void DecodeTile(const uint8_t* tile, float* out) {
  const float scale = LoadF16(tile);
  const float values[3] = {0.0f, scale, -scale};
  for (uint64_t i = 0; i < kGroup;) {
    uint32_t codes = tile[kScaleBytes + i / kCodesPerByte];
    const uint64_t end = std::min(i + kCodesPerByte, kGroup);
    for (; i < end; ++i, codes /= 3) out[i] = values[codes % 3];
  }
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const uint64_t tiles = shape.cols / kGroup;
  const uint8_t* tile = bytes.data() + row_begin * tiles * kTileBytes;
  for (uint64_t row = row_begin; row < row_end; ++row, out += shape.cols) {
    for (uint64_t t = 0; t < tiles; ++t, tile += kTileBytes) DecodeTile(tile, out + t * kGroup);
    const uint64_t end = RowPointer(bytes, shape, row + 1);
    for (uint64_t i = RowPointer(bytes, shape, row); i < end; ++i) {
      const uint8_t* entry = bytes.data() + EntriesOffset(shape) + i * kEntryBytes;
      out[LoadU16(entry)] = LoadF16(entry + kColumnBytes);
    }
  }
}

// A tile before its row's factor: -1, 0 or 1 a weight, times a scale.
struct Ternary {
  float scale = 0.0f;
  int8_t signs[kGroup] = {};

  double SquaredError(const float* values) const {
    double error = 0.0;
    for (uint64_t i = 0; i < kGroup; ++i) {
      const double miss = static_cast<double>(values[i]) -
                          static_cast<double>(static_cast<float>(signs[i]) * scale);
      error += miss * miss;
    }
    return error;
  }
};

// The weights of at least `support` magnitude get their sign, the others 0.
void Assign(const float* values, float support, Ternary* tile) {
  for (uint64_t i = 0; i < kGroup; ++i) {
    const bool live = std::fabs(values[i]) >= support;
    tile->signs[i] = static_cast<int8_t>(!live ? 0 : values[i] < 0.0f ? -1 : 1);
  }
}

// The better of two: scale of the mean magnitude, or of the mean over what clearly differs from 0.
Ternary Quantize(const float* values) {
  float sum = 0.0f;
  for (uint64_t i = 0; i < kGroup; ++i) sum += std::fabs(values[i]);
  const float mean = sum / static_cast<float>(kGroup);
  Ternary plain;
  plain.scale = F16ToF32(StoredScaleBits(mean));
  Assign(values, plain.scale / 2.0f, &plain);

  Ternary selective;
  const float support = 0.7f * mean;
  float selected = 0.0f;
  uint64_t count = 0;
  for (uint64_t i = 0; i < kGroup; ++i) {
    if (!(std::fabs(values[i]) >= support)) continue;
    selected += std::fabs(values[i]);
    ++count;
  }
  if (count == 0) return plain;
  selective.scale = F16ToF32(StoredScaleBits(selected / static_cast<float>(count)));
  Assign(values, support, &selective);
  return selective.SquaredError(values) < plain.SquaredError(values) ? selective : plain;
}

void EncodeRow(const float* values, uint64_t tiles, std::vector<Ternary>* scratch, uint8_t* out) {
  double product = 0.0;  // of quantized and true values, and the square of the former
  double square = 0.0;
  for (uint64_t t = 0; t < tiles; ++t) {
    Ternary& tile = (*scratch)[t];
    tile = Quantize(values + t * kGroup);
    for (uint64_t i = 0; i < kGroup; ++i) {
      const double quant = static_cast<double>(static_cast<float>(tile.signs[i]) * tile.scale);
      product += quant * static_cast<double>(values[t * kGroup + i]);
      square += quant * quant;
    }
  }
  const double ratio = square > 0.0 ? product / square : 1.0;
  const auto factor = static_cast<float>(std::min(std::max(0.5, ratio), 2.0));
  for (uint64_t t = 0; t < tiles; ++t, out += kTileBytes) {
    const Ternary& tile = (*scratch)[t];
    StoreU16(out, F32ToF16(tile.scale * factor));
    for (uint64_t b = 0; b < kCodeBytes; ++b) {
      uint32_t byte = 0;
      for (uint64_t i = std::min((b + 1) * kCodesPerByte, kGroup); i-- > b * kCodesPerByte;) {
        byte = byte * 3 + (tile.signs[i] < 0 ? 2u : static_cast<uint32_t>(tile.signs[i]));
      }
      out[kScaleBytes + b] = static_cast<uint8_t>(byte);
    }
  }
}

// Without calibration data no weight is worth an entry of its own: the overlay stays empty.
class Q1tEncoding : public Encoding {
 public:
  Q1tEncoding(MatrixShape shape, const EncodeOptions&) : shape_(shape) {}

  uint64_t size() const override { return EntriesOffset(shape_); }

  void EncodeRows(const float* values, uint64_t row_begin, uint64_t row_end,
                  uint8_t* out) const override {
    const uint64_t tiles = shape_.cols / kGroup;
    std::vector<Ternary> scratch(tiles);
    for (uint64_t row = row_begin; row < row_end; ++row, values += shape_.cols) {
      EncodeRow(values, tiles, &scratch, out + row * tiles * kTileBytes);
    }
  }

 private:
  MatrixShape shape_;
};

}  // namespace

const Codec kQ1tCodec = {
    .dtype = DType::kQ1t,
    .holds = Holds,
    .encoded_size = NoFixedSize,
    .validate = Validate,
    .decode_rows = DecodeRows,
    .encode = EncodeWhole<Q1tEncoding>,
    .start = StartEncoding<Q1tEncoding>,
};

}  // namespace moewe::quant
