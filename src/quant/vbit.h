// vbit and vbit_ro: rows of different widths, 3 to 8 bits (CMF v2 section 3.2).
//
//   [u8 width: rows][f16 scale: rows * groups][vbit_ro: u32 row offset: rows + 1][packed rows]
//
// with groups = cols / 32. A row is a stream of width-bit codes, most significant bit first; cols
// is a multiple of 32, so that every row is whole bytes. value = (code - L) * scale, L =
// 2^(width-1) -
// 1. Offsets count from the first packed row.
#ifndef MOEWE_QUANT_VBIT_H_
#define MOEWE_QUANT_VBIT_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/codec.h"

namespace moewe::quant {

inline constexpr std::array<uint8_t, 5> kVbitWidths = {3, 4, 5, 6, 8};

// Where the rows of a validated encoding begin: rows + 1 offsets into its bytes. What a reader of
// single rows prepares once for kVbit, whose rows can otherwise only be found by adding up all
// widths before them.
std::vector<uint64_t> VbitRowStarts(DType dtype, Bytes bytes, MatrixShape shape);

// Row `row`, whose packed codes begin at `start` of `bytes`, as f32 into out[cols].
void DecodeVbitRow(Bytes bytes, MatrixShape shape, uint64_t row, uint64_t start, float* out);

// Where packed row `row` of a validated kVbitRo encoding begins in `bytes`: its table says.
uint64_t VbitRoRowStart(Bytes bytes, MatrixShape shape, uint64_t row);

// log2 of the row's largest magnitude (at least 1e-12): what widths are allocated by.
float VbitAmplitude(const float* row, uint64_t cols);

// Widths by water-filling: the width nearest to mean_bits + (amplitude - average amplitude), the
// lower of two.
std::vector<uint8_t> AllocateVbit(std::span<const float> amplitudes, float mean_bits);

// The member of kVbitWidths nearest to `bits`, the lower of two.
uint8_t NearestVbitWidth(float bits);

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_VBIT_H_
