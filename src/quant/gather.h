// Some rows or columns of an encoded matrix as an encoded matrix of the same dtype, weight for
// weight the same: nothing is decoded.
#ifndef MOEWE_QUANT_GATHER_H_
#define MOEWE_QUANT_GATHER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quant/codec.h"

namespace moewe::quant {

// Whether the functions below have an answer for this dtype and shape.
bool CanGatherRows(DType dtype, MatrixShape shape);
bool CanGatherColumns(DType dtype, MatrixShape shape);

// `bytes` is validated (Codec::validate); indices are ascending and in range. Rows: every layout
// whose rows stand for themselves, so not q1s, q1t, nor a q4_block whose groups straddle rows.
// Columns: float dtypes, q8_row and q8_2f, where no scale belongs to a group of columns.
std::optional<std::vector<uint8_t>> GatherRows(DType dtype, Bytes bytes, MatrixShape shape,
                                               std::span<const uint32_t> rows);
std::optional<std::vector<uint8_t>> GatherColumns(DType dtype, Bytes bytes, MatrixShape shape,
                                                  std::span<const uint32_t> columns);

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_GATHER_H_
