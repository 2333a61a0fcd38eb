// q1s: q1's tiles, which only the ordinary weights shape, and the few largest weights apart.
//
//   [tiles: rows * cols / 32 * 6 bytes][u32 count][count * {u32 flat index, f16 value}]
//
// The entries ascend strictly by flat index = row * cols + column, so that a row's are found by
// binary search. Only the data tells the length.
#include <fmt/format.h>

#include <atomic>
#include <limits>

#include "quant/codecs.h"
#include "quant/layout.h"
#include "quant/sign_tile.h"

namespace moewe::quant {
namespace {

constexpr uint64_t kCountBytes = 4;
constexpr uint64_t kIndexBytes = 4;
constexpr uint64_t kEntryBytes = kIndexBytes + kScaleBytes;

// A flat index has 32 bits.
bool Holds(MatrixShape shape, size_t ndim) {
  const std::optional<uint64_t> elements = CheckedMul(shape.rows, shape.cols);
  return HoldsGroupedMatrix(shape, ndim) && elements && *elements <= uint64_t{1} << 32;
}

std::optional<uint64_t> NoFixedSize(MatrixShape) { return std::nullopt; }

uint32_t LoadU32(const uint8_t* p) {
  uint32_t value = 0;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

struct Overlay {
  const uint8_t* entries;
  uint64_t count;

  Overlay(Bytes bytes, MatrixShape shape) {
    const uint64_t tiles = *SignTilesSize(shape);
    entries = bytes.data() + tiles + kCountBytes;
    count = LoadU32(bytes.data() + tiles);
  }
  uint64_t Index(uint64_t i) const { return LoadU32(entries + i * kEntryBytes); }
  float Value(uint64_t i) const { return LoadF16(entries + i * kEntryBytes + kIndexBytes); }

  // The first entry whose index is at least `flat`.
  uint64_t Find(uint64_t flat) const {
    uint64_t low = 0;
    uint64_t high = count;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      (Index(middle) < flat ? low : high) = Index(middle) < flat ? middle + 1 : middle;
    }
    return low;
  }
};

void Validate(Bytes bytes, MatrixShape shape, const Where& where) {
  const std::optional<uint64_t> tiles = SignTilesSize(shape);
  const std::optional<uint64_t> fixed = tiles ? CheckedAdd(*tiles, kCountBytes) : tiles;
  if (!fixed || *fixed > bytes.size()) ThrowSizeMismatch(bytes.size(), fixed, where);
  const Overlay overlay(bytes, shape);
  const uint64_t expected = *fixed + overlay.count * kEntryBytes;  // count < 2^32
  if (expected != bytes.size()) ThrowSizeMismatch(bytes.size(), expected, where);
  const uint64_t elements = shape.rows * shape.cols;
  uint64_t next = 0;  // the least index that may follow
  for (uint64_t i = 0; i < overlay.count; ++i) {
    const uint64_t index = overlay.Index(i);
    if (index >= elements) {
      throw Error(ErrorCode::kBounds,
                  fmt::format("overlay entry {} is for weight {} of {}", i, index, elements),
                  where);
    }
    if (index < next) {
      throw Error(ErrorCode::kParse, fmt::format("overlay entry {} is out of order", i), where);
    }
    next = index + 1;
  }
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  DecodeSignTiles(bytes.data(), shape, row_begin, row_end, out);
  const Overlay overlay(bytes, shape);
  const uint64_t begin = row_begin * shape.cols;
  const uint64_t end = row_end * shape.cols;
  for (uint64_t i = overlay.Find(begin); i < overlay.count && overlay.Index(i) < end; ++i) {
    out[overlay.Index(i) - begin] = overlay.Value(i);
  }
}

// The k-th largest magnitude needs all weights: it is found from the top 16 bits of the values'
// patterns in one scan, the lower 16 in the next; a third counts each row's outliers.
class Q1sEncoding : public Encoding {
 public:
  Q1sEncoding(MatrixShape shape, const EncodeOptions& options)
      : shape_(shape), outliers_before_(shape.rows + 1), counts_(kPatterns) {
    const double keep = std::min(std::max(options.keep, 0.0), 0.25);
    wanted_ =
        static_cast<uint64_t>(std::round(static_cast<double>(shape.rows * shape.cols) * keep));
  }

  int scans() const override { return wanted_ == 0 ? 0 : 3; }

  void Scan(int scan, const float* values, uint64_t row_begin, uint64_t row_end) override {
    for (uint64_t row = row_begin; row < row_end; ++row, values += shape_.cols) {
      for (uint64_t i = 0; i < shape_.cols; ++i) {
        if (std::isnan(values[i])) continue;
        const auto pattern = std::bit_cast<uint32_t>(std::fabs(values[i]));
        if (scan == 0) {
          counts_[pattern >> 16].fetch_add(1, std::memory_order_relaxed);
        } else if (scan == 1) {
          if (pattern >> 16 == high_) {
            counts_[pattern & 0xFFFF].fetch_add(1, std::memory_order_relaxed);
          }
        } else {
          outliers_before_[row + 1] += pattern >= threshold_;
        }
      }
    }
  }

  void EndScan(int scan) override {
    if (scan == 2) {
      for (uint64_t row = 0; row < shape_.rows; ++row) {
        outliers_before_[row + 1] += outliers_before_[row];
      }
      if (outliers_before_.back() > std::numeric_limits<uint32_t>::max()) {
        throw Error(ErrorCode::kUnsupported, "more outliers than q1s can count");
      }
      return;
    }
    // From the largest pattern down to the one that the wanted_-th largest weight has.
    uint32_t pattern = kPatterns - 1;
    while (pattern > 0 && counts_[pattern] < wanted_) wanted_ -= counts_[pattern--];
    (scan == 0 ? high_ : threshold_) = scan == 0 ? pattern : high_ << 16 | pattern;
    for (std::atomic<uint64_t>& count : counts_) count = 0;
  }

  uint64_t size() const override {
    return *SignTilesSize(shape_) + kCountBytes + outliers_before_.back() * kEntryBytes;
  }

  void Begin(uint8_t* out) const override {
    const auto count = static_cast<uint32_t>(outliers_before_.back());
    std::memcpy(out + *SignTilesSize(shape_), &count, sizeof(count));
  }

  void EncodeRows(const float* values, uint64_t row_begin, uint64_t row_end,
                  uint8_t* out) const override {
    const float outlier = scans() == 0 ? kNoOutliers : std::bit_cast<float>(threshold_);
    const uint64_t tiles = shape_.cols / kGroup;
    uint8_t* tile = out + row_begin * tiles * kSignTileBytes;
    uint8_t* entry =
        out + *SignTilesSize(shape_) + kCountBytes + outliers_before_[row_begin] * kEntryBytes;
    for (uint64_t row = row_begin; row < row_end; ++row, values += shape_.cols) {
      float carry = 0.0f;
      for (uint64_t t = 0; t < tiles; ++t, tile += kSignTileBytes) {
        EncodeSignTile(values + t * kGroup, outlier, &carry, tile);
      }
      for (uint64_t i = 0; i < shape_.cols; ++i) {
        if (!(std::fabs(values[i]) >= outlier)) continue;
        const auto index = static_cast<uint32_t>(row * shape_.cols + i);
        std::memcpy(entry, &index, sizeof(index));
        StoreU16(entry + kIndexBytes, F32ToF16(values[i]));
        entry += kEntryBytes;
      }
    }
  }

 private:
  static constexpr uint32_t kPatterns = 1 << 16;

  MatrixShape shape_;
  uint64_t wanted_ = 0;                    // outliers, ties aside
  uint32_t high_ = 0;                      // the upper half of threshold_
  uint32_t threshold_ = 0;                 // the pattern of the least outlier's magnitude
  std::vector<uint64_t> outliers_before_;  // each row's first entry, and the count of all
  std::vector<std::atomic<uint64_t>> counts_;
};

}  // namespace

const Codec kQ1sCodec = {
    .dtype = DType::kQ1s,
    .holds = Holds,
    .encoded_size = NoFixedSize,
    .validate = Validate,
    .decode_rows = DecodeRows,
    .encode = EncodeWhole<Q1sEncoding>,
    .start = StartEncoding<Q1sEncoding>,
};

}  // namespace moewe::quant
