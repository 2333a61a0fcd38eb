// Weights as FP8 with one scale a block of rows and columns, as DeepSeek-V3 and others publish
// them.
//
// An element is a byte of E4M3 (Micikevicius et al. 2022, arXiv 2209.05433): sign, 4 bits of
// exponent with bias 7, 3 of mantissa; no infinity, 0x7F and 0xFF are NaN. The weight is that value
// times the scale of its block, one f32 product. Read when a model is converted; nothing computes
// with it or writes it.
#ifndef MOEWE_QUANT_FP8_H_
#define MOEWE_QUANT_FP8_H_

#include <cstdint>

#include "base/byte_reader.h"
#include "quant/codec.h"
#include "quant/dtype.h"

namespace moewe::quant {

// Scales of blocks of block_rows x block_cols weights, the last of a row or column perhaps smaller:
// a row-major matrix of Grid().
struct BlockScales {
  DType dtype = DType::kF32;  // or bf16
  Bytes bytes;
  uint32_t block_rows = 0;
  uint32_t block_cols = 0;

  MatrixShape Grid(MatrixShape weights) const;
};

// The value of one byte, exact; NaN for the two that are none.
float Fp8ToF32(uint8_t byte);

// Throws Error{kBounds, kParse} unless there is a byte for every element and a finite scale for
// every block.
void CheckFp8Layout(Bytes bytes, MatrixShape shape, const BlockScales& scales, const Where& where);

// Throws Error{kParse} for a byte that is no number. Reads all of them.
void CheckFp8Values(Bytes bytes, MatrixShape shape, const Where& where);

// Rows [row_begin, row_end) into out[(row_end - row_begin) * cols]. The layout is checked.
void DecodeFp8Rows(Bytes bytes, MatrixShape shape, const BlockScales& scales, uint64_t row_begin,
                   uint64_t row_end, float* out);

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_FP8_H_
