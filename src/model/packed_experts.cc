#include "model/packed_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/f16.h"
#include "formats/made_bytes.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using formats::TensorView;

uint64_t Count(uint64_t out, RowsInTurn rows) {
  return (out - rows.first + rows.step - 1) / rows.step;
}

TensorView Made(const TensorView& bank, DType dtype, std::vector<uint64_t> shape, size_t size,
                formats::MadeBytes::Make make) {
  TensorView view;
  view.name = bank.name;
  view.dtype = dtype;
  view.shape = std::move(shape);
  view.made = std::make_shared<formats::MadeBytes>(size, std::move(make));
  view.bytes = view.made->bytes();
  view.file_index = bank.file_index;
  view.file_offset = formats::kNotInFile;
  return view;
}

size_t ElementBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// to[i, j] = from[j, first + step * i] of kBytes each, tile by tile: a line of either side is used
// up before the next one is touched.
template <size_t kBytes>
void Transpose(const uint8_t* from, uint64_t in, uint64_t out, RowsInTurn rows, uint8_t* to) {
  constexpr uint64_t kTile = 32;
  const uint64_t count = Count(out, rows);
  for (uint64_t row = 0; row < count; row += kTile) {
    const uint64_t row_end = std::min(row + kTile, count);
    for (uint64_t col = 0; col < in; col += kTile) {
      const uint64_t col_end = std::min(col + kTile, in);
      for (uint64_t i = row; i < row_end; ++i) {
        const uint8_t* source = from + (rows.first + rows.step * i) * kBytes;
        for (uint64_t j = col; j < col_end; ++j) {
          std::memcpy(to + (i * in + j) * kBytes, source + j * out * kBytes, kBytes);
        }
      }
    }
  }
}

constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

using Mxfp4Values = std::array<std::array<uint16_t, kE2m1.size()>, 256>;  // bf16

// Of each scale, 2^(scale - 127), and code.
const Mxfp4Values& ValuesOfMxfp4() {
  static const Mxfp4Values kValues = [] {
    Mxfp4Values values;
    for (int scale = 0; scale < 256; ++scale) {
      for (size_t code = 0; code < kE2m1.size(); ++code) {
        const float value = scale == 255 ? std::nanf("") : std::ldexp(kE2m1[code], scale - 127);
        values[static_cast<size_t>(scale)][code] = F32ToBf16(value);
      }
    }
    return values;
  }();
  return kValues;
}

// False if a number is not finite. Low nibbles come first.
bool Unpack(const uint8_t* blocks, const uint8_t* scales, uint64_t groups, uint8_t* to) {
  constexpr uint16_t kNotFinite = 0x7F80;
  bool finite = true;
  for (uint64_t g = 0; g < groups; ++g) {
    const auto& values = ValuesOfMxfp4()[scales[g]];
    for (size_t i = 0; i < kMxfp4Group / 2; ++i) {
      const uint8_t byte = blocks[g * (kMxfp4Group / 2) + i];
      const std::array<uint16_t, 2> pair{values[byte & 15], values[byte >> 4]};
      finite =
          finite && (pair[0] & kNotFinite) != kNotFinite && (pair[1] & kNotFinite) != kNotFinite;
      std::memcpy(to, pair.data(), sizeof(pair));
      to += sizeof(pair);
    }
  }
  return finite;
}

}  // namespace

TensorView TransposedRows(const TensorView& bank, uint64_t expert, RowsInTurn rows) {
  const uint64_t in = bank.shape[1];
  const uint64_t out = bank.shape[2];
  const size_t element = ElementBytes(bank.dtype);
  const uint8_t* from = bank.bytes.data() + expert * in * out * element;
  const uint64_t count = Count(out, rows);
  return Made(bank, bank.dtype, {count, in}, count * in * element, [=](std::span<uint8_t> to) {
    if (element == 4) {
      Transpose<4>(from, in, out, rows, to.data());
    } else {
      Transpose<2>(from, in, out, rows, to.data());
    }
  });
}

TensorView EntriesInTurn(const TensorView& bank, uint64_t expert, RowsInTurn rows) {
  TensorView columns = bank;
  columns.shape = {bank.shape[0], 1, bank.shape[1]};
  TensorView view = TransposedRows(columns, expert, rows);
  view.shape = {view.shape[0]};
  return view;
}

TensorView UnpackedRows(const TensorView& blocks, const TensorView& scales, uint64_t expert,
                        RowsInTurn rows, const std::string& file) {
  const uint64_t out = scales.shape[1];
  const uint64_t groups = scales.shape[2];
  const uint8_t* first_block = blocks.bytes.data() + expert * out * groups * (kMxfp4Group / 2);
  const uint8_t* first_scale = scales.bytes.data() + expert * out * groups;
  const uint64_t count = Count(out, rows);
  const uint64_t row_bytes = groups * kMxfp4Group * 2;
  const Where where{file, scales.name, scales.file_offset};
  return Made(blocks, DType::kBf16, {count, groups * kMxfp4Group}, count * row_bytes,
              [=](std::span<uint8_t> to) {
                for (uint64_t i = 0; i < count; ++i) {
                  const uint64_t at = (rows.first + rows.step * i) * groups;
                  if (Unpack(first_block + at * (kMxfp4Group / 2), first_scale + at, groups,
                             to.data() + i * row_bytes)) {
                    continue;
                  }
                  throw Error(ErrorCode::kParse,
                              fmt::format("{} has a scale that gives no finite number, of expert "
                                          "{}, row {}",
                                          where.field, expert, rows.first + rows.step * i),
                              where);
                }
              });
}

}  // namespace moewe::model
