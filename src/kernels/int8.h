// Integer dot products of quantized weights with int8 activations.
//
// The rule, the same on every instruction set, bit for bit: activations are quantized per group of
// 32 (scale dx = absmax / 127, round to nearest even); a group's products are summed exactly in
// int32; group g goes to chain j = g mod 4, groups ascending, c_j = fma(float(sum), ws * dx, c_j);
// a row is (c0 + c2) + (c1 + c3). 8-bit rows have one scale: c_j = fma(float(sum), dx, c_j), and
// the row is multiplied by it at the end. The weights of smoe_q4 and smoe_q2 are the odd integers
// 2 code - 15 and 2 code - 3, their ws the group's scale times 1/15 and 1/3 in f32. q8_2f
// multiplies the activations by the column field before they are quantized. Weights that q1s and
// q1t keep apart are added after that (overlay.h). A group with a NaN or an infinity gets dx = NaN,
// so that the result is NaN; one below 1e-36 counts as zero.
#ifndef MOEWE_KERNELS_INT8_H_
#define MOEWE_KERNELS_INT8_H_

#include <cstddef>
#include <cstdint>

#include "kernels/compute.h"
#include "kernels/isa.h"
#include "kernels/prefetch.h"

namespace moewe::kernels {

// The form in which a weight matrix wants its activations.
enum class Input : uint8_t {
  kFloat,       // f32, as they are
  kNibbles,     // quantized, for 4-bit weights: code - 8
  kOddNibbles,  // quantized, for 4-bit weights of .smoe vaults: 2 code - 15
  kOddCrumbs,   // quantized, for 2-bit weights of .smoe vaults: 2 code - 3
  kBytes,       // quantized, for 8-bit weights
  kPlain,       // quantized, for vbit, vbit_ro, q1, q1s, q1t
};

// What the stored sums of a group's activations are multiplied by: the offset of the codes.
constexpr int32_t SumFactor(Input input) {
  switch (input) {
    case Input::kNibbles:
      return 8;
    case Input::kOddNibbles:
      return 15;
    case Input::kOddCrumbs:
      return 3;
    case Input::kBytes:
      return 128;
    default:
      return 1;
  }
}

Input InputOf(const Matrix& matrix, Activations activations);

// The column field of a q8_2f matrix (f16[cols]), null for every other.
const uint8_t* ColFieldOf(const Matrix& matrix);

// A quantized activation row: [int8 q: padded groups * 32, in the order that the kernels of the
// instruction set want][f32 dx, four copies a group][i32 SumFactor times the sum of q, four copies
// a group]. Four copies, because a vector holds four weight rows a group. Padded to a multiple of 4
// groups with zeros. kPlain: q in natural order, one dx and one sum of q a group, at the same two
// places.
struct PreparedRow {
  static size_t PaddedGroups(size_t cols) { return (cols + 127) / 128 * 4; }
  static size_t Bytes(size_t cols) { return PaddedGroups(cols) * 64; }
};

// Quantizes groups [group, group + ceil(count / 32)) of a row of `cols` values: x[count] and the
// matching part of the column field (f16, null = none) start at that group. The call that reaches
// the end of the row fills the padding.
using QuantizeFn = void (*)(const float* x, const uint8_t* col_field, size_t count, size_t group,
                            size_t cols, Input input, uint8_t* row);

// y[t][r - row_begin] = row r of the matrix times activation row t, for r in [row_begin, row_end)
// and t in [0, n). `scratch`: Int8ScratchFloats(cols), 64-byte aligned. `next` only speeds up what
// follows.
using Int8Fn = void (*)(const Matrix& w, uint32_t row_begin, uint32_t row_end,
                        const uint8_t* const* x, size_t n, float* const* y, float* scratch,
                        const NextRows& next);

struct Int8Kernels {
  QuantizeFn quantize;
  Int8Fn packed;  // q4_block with cols % 32 == 0, q4_tiled, q4tp; smoe_q4, smoe_q2 likewise
  Int8Fn bytes;   // q8_row, q8_2f
  Int8Fn plain;   // vbit, vbit_ro, q1, q1s, q1t

  Int8Fn For(Input input) const {
    return input == Input::kPlain ? plain : input == Input::kBytes ? bytes : packed;
  }
};

// Activations that share a scale.
inline constexpr size_t kInt8Group = 32;

size_t Int8ScratchFloats(size_t cols);

const Int8Kernels& Int8KernelsFor(Isa isa);
extern const Int8Kernels kInt8Scalar;
void PlainScalar(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
                 size_t n, float* const* y, float* scratch, const NextRows& next);
#if defined(__x86_64__)
extern const Int8Kernels kInt8Avx2;
extern const Int8Kernels kInt8Avx512;

// Scales of rows [row, row + 8) of a matrix of packed codes, the last row repeated where there are
// fewer: two panels of [padded groups][4 rows], of .smoe vaults [pairs of groups][4 rows]; the
// second Int8PanelFloats(cols) after the first. On the way it asks for weights from `ahead` on, a
// quarter of what the rows have; null = none. AVX2 code, used by AVX-512 too.
void ScalePanelsAvx2(const Matrix& w, uint32_t row, const uint8_t* ahead, float* panels);
// As QuantizeFn, for kernels that hold `groups_per_vector` 4-bit groups a register. kOddCrumbs:
// steps of four groups, [elements 0 mod 4 of all][1 mod 4][2 mod 4][3 mod 4], dx and sums of group
// g at CrumbPlace(g).
void QuantizeAvx2(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
                  Input input, size_t groups_per_vector, uint8_t* row);
// AVX2's packed codes where there are tokens enough to lay rows out anew.
void BatchPackedAvx2(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
                     size_t n, float* const* y, float* scratch);
// Used by AVX-512, too.
void PlainAvx2(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
               size_t n, float* const* y, float* scratch, const NextRows& next);
#endif

// A vector of 2-bit codes has a pair of groups in each of its lanes, so that sums come out as the
// pairs' first groups and then their second ones: 0, 2, 1, 3.
constexpr size_t CrumbPlace(size_t group) {
  return (group & ~size_t{3}) | (group & 1) << 1 | (group >> 1 & 1);
}

// Panels are written in steps of up to 16 groups.
inline size_t Int8PanelFloats(size_t cols) { return PreparedRow::PaddedGroups(cols) * 4 + 64; }
// Two panels and what making them takes.
inline size_t Int8ScalesFloats(size_t cols) { return 2 * Int8PanelFloats(cols) + 8 * 32; }

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_INT8_H_
