// Where the parts of a stored matrix lie: the one place of this layer that knows the offsets of CMF
// v2 section 3.2 and of .smoe vaults (docs/formats/smoe.md).
#ifndef MOEWE_KERNELS_LAYOUT_H_
#define MOEWE_KERNELS_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/f16.h"
#include "kernels/compute.h"

namespace moewe::kernels {

inline constexpr size_t kGroup = 32;         // weights that share a scale; activations too
inline constexpr size_t kGroupNibbles = 16;  // bytes of a 4-bit group
inline constexpr size_t kGroupCrumbs = 8;    // of a 2-bit group
inline constexpr size_t kTileBytes = 18;     // q4_tiled: f16 scale, then the nibbles

inline constexpr size_t kSignTileBytes = 6;     // q1, q1s: f16 scale, then 32 signs
inline constexpr size_t kTernaryTileBytes = 9;  // q1t: f16 scale, then 32 digits, five a byte

inline uint16_t LoadU16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline uint32_t LoadU32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline float LoadF16(const uint8_t* p) { return F16ToF32(LoadU16(p)); }

// q8_row and q8_2f: [int8 rows * cols][f16 row scales] and, for q8_2f, [f16 col field].
struct Q8Layout {
  explicit Q8Layout(const Matrix& m)
      : quants(m.bytes.data()),
        row_scales(quants + size_t{m.rows} * m.cols),
        col_field(m.dtype == DType::kQ82f ? row_scales + size_t{m.rows} * 2 : nullptr) {}
  const uint8_t* quants;
  const uint8_t* row_scales;
  const uint8_t* col_field;
};

// q4_block: [nibbles, 16 bytes a group][f16 scale a group], groups over the flattened matrix.
struct Q4BlockLayout {
  explicit Q4BlockLayout(const Matrix& m)
      : groups((size_t{m.rows} * m.cols + kGroup - 1) / kGroup),
        nibbles(m.bytes.data()),
        scales(nibbles + groups * kGroupNibbles) {}
  size_t groups;
  const uint8_t* nibbles;
  const uint8_t* scales;
};

// q4tp: [nibbles][f16 lo, f16 step a row][5-bit codes, LSB first, whole bytes a row].
struct Q4tpLayout {
  explicit Q4tpLayout(const Matrix& m)
      : groups_per_row(m.cols / kGroup),
        code_bytes((groups_per_row * 5 + 7) / 8),
        nibbles(m.bytes.data()),
        params(nibbles + size_t{m.rows} * groups_per_row * kGroupNibbles),
        codes(params + size_t{m.rows} * 4) {}
  size_t groups_per_row;
  size_t code_bytes;
  const uint8_t* nibbles;
  const uint8_t* params;
  const uint8_t* codes;
};

// smoe_q4 and smoe_q2: [codes, lowest bits of a byte first][f16 scale a 64 weights], groups over
// the flattened matrix. Here for rows of whole groups, each of which is a pair of groups of 32.
inline constexpr size_t kSmoeGroup = 64;
struct SmoeLayout {
  explicit SmoeLayout(const Matrix& m)
      : pairs_per_row(m.cols / kSmoeGroup),
        row_bytes(m.cols / (m.dtype == DType::kSmoeQ4 ? 2 : 4)),
        codes(m.bytes.data()),
        scales(codes + m.rows * row_bytes) {}
  const uint8_t* Codes(size_t row) const { return codes + row * row_bytes; }
  const uint8_t* Scales(size_t row) const { return scales + row * pairs_per_row * 2; }
  size_t pairs_per_row;
  size_t row_bytes;
  const uint8_t* codes;
  const uint8_t* scales;
};

// The largest magnitude of a weight in the integer path is one scale.
inline constexpr float kSmoeQ4Unit = 1.0f / 15.0f;
inline constexpr float kSmoeQ2Unit = 1.0f / 3.0f;

// vbit and vbit_ro: [u8 width a row][f16 scale a group][vbit_ro: u32 row offsets, rows + 1]
// [packed rows].
struct VbitLayout {
  explicit VbitLayout(const Matrix& m)
      : matrix(m),
        groups_per_row(m.cols / kGroup),
        widths(m.bytes.data()),
        scales(widths + m.rows),
        offsets(scales + m.rows * groups_per_row * 2) {}
  // The packed codes of a row, which end where those of the next one begin. kVbit has to have
  // Matrix::row_starts.
  const uint8_t* Row(uint32_t row) const {
    if (matrix.dtype == DType::kVbit) return widths + matrix.row_starts[row];
    return offsets + (size_t{matrix.rows} + 1) * 4 + LoadU32(offsets + size_t{row} * 4);
  }
  const Matrix& matrix;
  size_t groups_per_row;
  const uint8_t* widths;
  const uint8_t* scales;
  const uint8_t* offsets;
};

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_LAYOUT_H_
