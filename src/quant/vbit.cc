// vbit and vbit_ro; the layout is in vbit.h.
#include "quant/vbit.h"

#include <fmt/format.h>

#include <limits>

#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

constexpr uint64_t kOffsetBytes = 4;

// Bytes of one packed row; cols is a multiple of 32.
uint64_t PackedBytes(uint64_t cols, uint8_t width) { return cols / 8 * width; }

uint64_t ScalesOffset(MatrixShape shape) { return shape.rows; }
uint64_t TableOffset(MatrixShape shape) {
  return shape.rows + shape.rows * (shape.cols / kGroup) * kScaleBytes;
}
uint64_t PackedOffset(DType dtype, MatrixShape shape) {
  return TableOffset(shape) + (dtype == DType::kVbitRo ? (shape.rows + 1) * kOffsetBytes : 0);
}

uint32_t LoadU32(const uint8_t* p) {
  uint32_t value = 0;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// PackedOffset where it fits 64 bits.
std::optional<uint64_t> CheckedPackedOffset(DType dtype, MatrixShape shape) {
  const uint64_t table = dtype == DType::kVbitRo ? kOffsetBytes : 0;
  const std::optional<uint64_t> row = CheckedMulAdd(shape.cols / kGroup, kScaleBytes, 1 + table);
  return row ? CheckedMulAdd(CheckedMul(*row, shape.rows), 1, table) : std::nullopt;
}

bool IsWidth(uint8_t width) {
  return std::find(kVbitWidths.begin(), kVbitWidths.end(), width) != kVbitWidths.end();
}

template <DType kDType>
void Validate(Bytes bytes, MatrixShape shape, const Where& where) {
  const std::optional<uint64_t> packed = CheckedPackedOffset(kDType, shape);
  if (!packed || *packed > bytes.size()) ThrowSizeMismatch(bytes.size(), packed, where);
  uint64_t end = *packed;
  for (uint64_t row = 0; row < shape.rows; ++row) {
    const uint8_t width = bytes[row];
    if (!IsWidth(width)) {
      throw Error(ErrorCode::kBounds,
                  fmt::format("row {} has width {}, not one of 3, 4, 5, 6, 8", row, width), where);
    }
    if (kDType == DType::kVbitRo && VbitRoRowStart(bytes, shape, row) != end) {
      throw Error(ErrorCode::kBounds,
                  fmt::format("row {} begins at {} by the table, at {} by the widths", row,
                              VbitRoRowStart(bytes, shape, row) - *packed, end - *packed),
                  where);
    }
    const std::optional<uint64_t> next = CheckedAdd(end, PackedBytes(shape.cols, width));
    if (!next || *next > bytes.size()) ThrowSizeMismatch(bytes.size(), next, where);
    end = *next;
  }
  if (end != bytes.size()) ThrowSizeMismatch(bytes.size(), end, where);
  if (kDType == DType::kVbitRo && VbitRoRowStart(bytes, shape, shape.rows) != end) {
    throw Error(ErrorCode::kBounds, "the last row offset is not the end of the rows", where);
  }
}

std::optional<uint64_t> NoFixedSize(MatrixShape) { return std::nullopt; }

template <DType kDType>
void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  uint64_t start = PackedOffset(kDType, shape);
  if (kDType == DType::kVbitRo) {
    start = VbitRoRowStart(bytes, shape, row_begin);
  } else {
    uint64_t widths = 0;
    for (uint64_t row = 0; row < row_begin; ++row) widths += bytes[row];
    start += widths * (shape.cols / 8);
  }
  for (uint64_t row = row_begin; row < row_end; ++row, out += shape.cols) {
    DecodeVbitRow(bytes, shape, row, start, out);
    start += PackedBytes(shape.cols, bytes[row]);
  }
}

// One row: a scale a group, then the codes against it.
void EncodeRow(const float* values, uint64_t cols, uint8_t width, uint8_t* scales,
               uint8_t* packed) {
  const float middle = static_cast<float>((1 << (width - 1)) - 1);
  const uint32_t mask = (1u << width) - 1;
  for (uint64_t g = 0; g < cols / kGroup; ++g, values += kGroup) {
    const uint16_t bits = StoredScaleBits(AbsMax(values, kGroup) / middle);
    const float scale = F16ToF32(bits);
    StoreU16(scales + g * kScaleBytes, bits);
    uint64_t window = 0;  // the codes not yet stored, in its low `held` bits
    int held = 0;
    for (uint64_t i = 0; i < kGroup; ++i) {
      const int32_t quant = RoundClamped(values[i] / scale, -middle, middle + 1.0f);
      window =
          window << width | (static_cast<uint32_t>(quant + static_cast<int32_t>(middle)) & mask);
      for (held += width; held >= 8; held -= 8) {
        *packed++ = static_cast<uint8_t>(window >> (held - 8));
      }
    }
  }
}

template <DType kDType>
class VbitEncoding : public Encoding {
 public:
  VbitEncoding(MatrixShape shape, const EncodeOptions& options)
      : shape_(shape),
        mean_bits_(options.mean_bits),
        widths_(options.row_bits.begin(), options.row_bits.end()) {
    if (widths_.size() == shape.rows) {
      PlaceRows();
    } else {
      amplitudes_.resize(shape.rows);
    }
  }

  int scans() const override { return amplitudes_.empty() ? 0 : 1; }

  void Scan(int, const float* values, uint64_t row_begin, uint64_t row_end) override {
    for (uint64_t row = row_begin; row < row_end; ++row, values += shape_.cols) {
      amplitudes_[row] = VbitAmplitude(values, shape_.cols);
    }
  }

  void EndScan(int) override {
    widths_ = AllocateVbit(amplitudes_, mean_bits_);
    PlaceRows();
  }

  uint64_t size() const override { return starts_.back(); }

  void Begin(uint8_t* out) const override {
    std::copy(widths_.begin(), widths_.end(), out);
    if (kDType != DType::kVbitRo) return;
    for (uint64_t row = 0; row <= shape_.rows; ++row) {
      const auto offset = static_cast<uint32_t>(starts_[row] - starts_[0]);
      std::memcpy(out + TableOffset(shape_) + row * kOffsetBytes, &offset, sizeof(offset));
    }
  }

  void EncodeRows(const float* values, uint64_t row_begin, uint64_t row_end,
                  uint8_t* out) const override {
    const uint64_t scale_bytes = shape_.cols / kGroup * kScaleBytes;
    for (uint64_t row = row_begin; row < row_end; ++row, values += shape_.cols) {
      EncodeRow(values, shape_.cols, widths_[row], out + ScalesOffset(shape_) + row * scale_bytes,
                out + starts_[row]);
    }
  }

 private:
  void PlaceRows() {
    starts_.assign(1, CheckedPackedOffset(kDType, shape_).value());
    for (const uint8_t width : widths_) {
      starts_.push_back(starts_.back() + PackedBytes(shape_.cols, width));
    }
    if (kDType == DType::kVbitRo &&
        starts_.back() - starts_.front() > std::numeric_limits<uint32_t>::max()) {
      throw Error(ErrorCode::kUnsupported, "more than 4 GiB of rows: vbit_ro cannot address them");
    }
  }

  MatrixShape shape_;
  float mean_bits_;
  std::vector<float> amplitudes_;
  std::vector<uint8_t> widths_;
  std::vector<uint64_t> starts_;  // of packed rows, and their end
};

template <DType kDType>
constexpr Codec MakeCodec() {
  return {.dtype = kDType,
          .holds = HoldsGroupedMatrix,
          .encoded_size = NoFixedSize,
          .validate = Validate<kDType>,
          .decode_rows = DecodeRows<kDType>,
          .encode = EncodeWhole<VbitEncoding<kDType>>,
          .start = StartEncoding<VbitEncoding<kDType>>};
}

}  // namespace

uint64_t VbitRoRowStart(Bytes bytes, MatrixShape shape, uint64_t row) {
  return PackedOffset(DType::kVbitRo, shape) +
         LoadU32(bytes.data() + TableOffset(shape) + row * kOffsetBytes);
}

std::vector<uint64_t> VbitRowStarts(DType dtype, Bytes bytes, MatrixShape shape) {
  std::vector<uint64_t> starts(shape.rows + 1);
  starts[0] = PackedOffset(dtype, shape);
  for (uint64_t row = 0; row < shape.rows; ++row) {
    starts[row + 1] = starts[row] + PackedBytes(shape.cols, bytes[row]);
  }
  return starts;
}

void DecodeVbitRow(Bytes bytes, MatrixShape shape, uint64_t row, uint64_t start, float* out) {
  const uint8_t width = bytes[row];
  const int32_t middle = (1 << (width - 1)) - 1;
  const uint32_t mask = (1u << width) - 1;
  const uint64_t groups = shape.cols / kGroup;
  const uint8_t* scales = bytes.data() + ScalesOffset(shape) + row * groups * kScaleBytes;
  const uint8_t* packed = bytes.data() + start;
  for (uint64_t g = 0; g < groups; ++g, out += kGroup) {
    const float scale = LoadF16(scales + g * kScaleBytes);
    uint64_t window = 0;  // the low `held` bits are yet to be read
    int held = 0;
    for (uint64_t i = 0; i < kGroup; ++i) {
      if (held < width) {
        window = window << 8 | *packed++;
        held += 8;
      }
      held -= width;
      const auto code = static_cast<int32_t>((window >> held) & mask);
      out[i] = static_cast<float>(code - middle) * scale;
    }
  }
}

float VbitAmplitude(const float* row, uint64_t cols) {
  constexpr float kLeast = 1e-12f;
  const float largest = std::max(AbsMax(row, cols), kLeast);
  return static_cast<float>(std::log2(static_cast<double>(largest)));
}

uint8_t NearestVbitWidth(float bits) {
  uint8_t nearest = kVbitWidths[0];
  for (const uint8_t width : kVbitWidths) {
    if (std::fabs(bits - static_cast<float>(width)) <
        std::fabs(bits - static_cast<float>(nearest))) {
      nearest = width;
    }
  }
  return nearest;
}

std::vector<uint8_t> AllocateVbit(std::span<const float> amplitudes, float mean_bits) {
  float sum = 0.0f;  // in order, as existing writers add them
  for (const float amplitude : amplitudes) sum += amplitude;
  const float average = sum / static_cast<float>(amplitudes.size());
  std::vector<uint8_t> widths;
  widths.reserve(amplitudes.size());
  for (const float amplitude : amplitudes) {
    widths.push_back(NearestVbitWidth(mean_bits + (amplitude - average)));
  }
  return widths;
}

const Codec kVbitCodec = MakeCodec<DType::kVbit>();
const Codec kVbitRoCodec = MakeCodec<DType::kVbitRo>();

}  // namespace moewe::quant
