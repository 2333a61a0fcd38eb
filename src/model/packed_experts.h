// Matrices of experts that gpt-oss keeps in layouts of its own: stored by input, rows of gate and
// up in turn, or packed as MXFP4 (OCP Microscaling Formats 1.0: groups of 32 E2M1 numbers with one
// power of two). They are made when they are used (formats/made_bytes.h).
#ifndef MOEWE_MODEL_PACKED_EXPERTS_H_
#define MOEWE_MODEL_PACKED_EXPERTS_H_

#include <cstdint>
#include <string>

#include "formats/checkpoint.h"

namespace moewe::model {

// Which output rows of a matrix: first, first + step, ...
struct RowsInTurn {
  uint64_t first = 0;
  uint64_t step = 1;
};

inline constexpr uint64_t kMxfp4Group = 32;

// Of `bank` [experts, in, out], f32, f16 or bf16, the matrix [rows, in] of one expert. Its name is
// that of the bank, as below.
formats::TensorView TransposedRows(const formats::TensorView& bank, uint64_t expert,
                                   RowsInTurn rows);

// Of `bank` [experts, out], the vector [rows] of one expert.
formats::TensorView EntriesInTurn(const formats::TensorView& bank, uint64_t expert,
                                  RowsInTurn rows);

// Of `blocks` [experts, out, groups, 16] and `scales` [experts, out, groups], both u8, the matrix
// [rows, 32 * groups] of one expert as bf16, which holds it exactly. Making it throws Error{kParse}
// for a scale that gives no finite number.
formats::TensorView UnpackedRows(const formats::TensorView& blocks,
                                 const formats::TensorView& scales, uint64_t expert,
                                 RowsInTurn rows, const std::string& file);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_PACKED_EXPERTS_H_
