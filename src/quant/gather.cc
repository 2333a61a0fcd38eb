#include "quant/gather.h"

#include <cstring>

#include "quant/layout.h"
#include "quant/vbit.h"

namespace moewe::quant {
namespace {

// A layout of fixed size as areas, one after the other: each has `stride` bytes for every row, and
// at the end there may be `tail` bytes that belong to all rows.
struct RowAreas {
  std::vector<uint64_t> strides;
  uint64_t tail = 0;
};

std::optional<RowAreas> AreasOf(DType dtype, MatrixShape shape) {
  const uint64_t groups = shape.cols / kGroup;
  switch (dtype) {
    case DType::kF32:
      return RowAreas{{shape.cols * 4}};
    case DType::kF16:
    case DType::kBf16:
      return RowAreas{{shape.cols * 2}};
    case DType::kQ8Row:
      return RowAreas{{shape.cols, kScaleBytes}};
    case DType::kQ82f:
      return RowAreas{{shape.cols, kScaleBytes}, shape.cols * kScaleBytes};
    case DType::kQ4Block:
      if (shape.cols % kGroup != 0) return std::nullopt;
      return RowAreas{{groups * kGroupNibbles, groups * kScaleBytes}};
    case DType::kQ4Tiled:
      return RowAreas{{groups * (kScaleBytes + kGroupNibbles)}};
    case DType::kQ4tp:
      return RowAreas{{groups * kGroupNibbles, 2 * kScaleBytes, (groups * 5 + 7) / 8}};
    case DType::kQ1:
      return RowAreas{{groups * (kScaleBytes + kGroup / 8)}};
    default:
      return std::nullopt;
  }
}

bool IsVbit(DType dtype) { return dtype == DType::kVbit || dtype == DType::kVbitRo; }

std::vector<uint8_t> GatherVbit(DType dtype, Bytes bytes, MatrixShape shape,
                                std::span<const uint32_t> rows) {
  const std::vector<uint64_t> starts = VbitRowStarts(dtype, bytes, shape);
  const uint64_t scale_bytes = shape.cols / kGroup * kScaleBytes;
  std::vector<uint8_t> out;
  const auto append = [&](uint64_t begin, uint64_t size) {
    const Bytes piece = bytes.subspan(begin, size);
    out.insert(out.end(), piece.begin(), piece.end());
  };
  for (const uint32_t row : rows) append(row, 1);
  for (const uint32_t row : rows) append(shape.rows + row * scale_bytes, scale_bytes);
  if (dtype == DType::kVbitRo) {
    uint32_t end = 0;  // fits: no larger than the source's
    const auto append_offset = [&out](uint32_t offset) {
      const auto* p = reinterpret_cast<const uint8_t*>(&offset);
      out.insert(out.end(), p, p + sizeof(offset));
    };
    append_offset(end);
    for (const uint32_t row : rows) {
      end += static_cast<uint32_t>(starts[row + 1] - starts[row]);
      append_offset(end);
    }
  }
  for (const uint32_t row : rows) append(starts[row], starts[row + 1] - starts[row]);
  return out;
}

// Elements of `width` bytes at `columns` of one row.
void CopyColumns(const uint8_t* row, std::span<const uint32_t> columns, uint64_t width,
                 uint8_t* out) {
  for (const uint32_t column : columns) {
    std::memcpy(out, row + column * width, width);
    out += width;
  }
}

}  // namespace

bool CanGatherRows(DType dtype, MatrixShape shape) {
  return IsVbit(dtype) || AreasOf(dtype, shape).has_value();
}

bool CanGatherColumns(DType dtype, MatrixShape /*shape*/) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16 ||
         dtype == DType::kQ8Row || dtype == DType::kQ82f;
}

std::optional<std::vector<uint8_t>> GatherRows(DType dtype, Bytes bytes, MatrixShape shape,
                                               std::span<const uint32_t> rows) {
  if (IsVbit(dtype)) return GatherVbit(dtype, bytes, shape, rows);
  const std::optional<RowAreas> areas = AreasOf(dtype, shape);
  if (!areas) return std::nullopt;
  uint64_t row_bytes = 0;
  for (const uint64_t stride : areas->strides) row_bytes += stride;
  std::vector<uint8_t> out(rows.size() * row_bytes + areas->tail);
  uint8_t* to = out.data();
  const uint8_t* area = bytes.data();
  for (const uint64_t stride : areas->strides) {
    for (const uint32_t row : rows) {
      std::memcpy(to, area + row * stride, stride);
      to += stride;
    }
    area += shape.rows * stride;
  }
  std::memcpy(to, area, areas->tail);
  return out;
}

std::optional<std::vector<uint8_t>> GatherColumns(DType dtype, Bytes bytes, MatrixShape shape,
                                                  std::span<const uint32_t> columns) {
  if (!CanGatherColumns(dtype, shape)) return std::nullopt;
  const bool is_q8 = dtype == DType::kQ8Row || dtype == DType::kQ82f;
  const uint64_t width = is_q8 ? 1 : dtype == DType::kF32 ? 4 : 2;
  const uint64_t scales = is_q8 ? shape.rows * kScaleBytes : 0;  // of rows: they stay
  const uint64_t field = dtype == DType::kQ82f ? kScaleBytes : 0;
  std::vector<uint8_t> out(shape.rows * columns.size() * width + scales + columns.size() * field);
  uint8_t* to = out.data();
  for (uint64_t row = 0; row < shape.rows; ++row) {
    CopyColumns(bytes.data() + row * shape.cols * width, columns, width, to);
    to += columns.size() * width;
  }
  const uint8_t* rest = bytes.data() + shape.rows * shape.cols * width;
  std::memcpy(to, rest, scales);
  if (field != 0) CopyColumns(rest + scales, columns, field, to + scales);
  return out;
}

}  // namespace moewe::quant
