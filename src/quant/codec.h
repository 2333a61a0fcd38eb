// One codec a dtype: stored bytes to floats and back (CMF v2 section 3.2).
//
// These are the scalar definitions that every SIMD kernel is tested against; they favour clarity
// over speed, though conversion uses them too. A codec is one file and one line in codec.cc's
// table.
#ifndef MOEWE_QUANT_CODEC_H_
#define MOEWE_QUANT_CODEC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "quant/dtype.h"

namespace moewe::quant {

// A tensor seen as a matrix: rows = product of all dimensions but the last, cols = the last; a
// vector is one row. Row-major.
struct MatrixShape {
  uint64_t rows = 0;
  uint64_t cols = 0;
};

// rows, cols of a tensor shape, or nothing if the element count overflows 64 bits.
std::optional<MatrixShape> AsMatrix(std::span<const uint64_t> shape);

// Immutable and stateless; all functions may be called from any thread.
struct Codec {
  DType dtype;

  // Whether the layout can hold such a matrix at all (e.g. cols % 32 == 0); `ndim` because some
  // layouts are for 2-D tensors only.
  bool (*holds)(MatrixShape shape, size_t ndim);

  // Exact bytes of the encoding, or nothing: on overflow, and for layouts whose length depends on
  // the data (q1s, q1t, vbit), where validate() checks the stored span instead.
  std::optional<uint64_t> (*encoded_size)(MatrixShape shape);

  // Throws Error{kBounds or kParse} unless `bytes` is a well-formed encoding of `shape`. After it,
  // decoding never reads outside of `bytes`. `where` goes into the error.
  void (*validate)(Bytes bytes, MatrixShape shape, const Where& where);

  // Rows [row_begin, row_end) as f32 into out[(row_end - row_begin) * cols]. `bytes` is validated.
  void (*decode_rows)(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                      float* out);

  // Encodes values[rows * cols]; byte for byte what existing CMF writers produce. Null where moewe
  // does not write the dtype.
  void (*encode)(std::span<const float> values, MatrixShape shape, std::vector<uint8_t>* out);

  // The same encoding made in pieces, by any number of threads, for layouts of a fixed size; null
  // for others. `values` are the rows [row_begin, row_end) alone; row_begin is a multiple of
  // kEncodeRowAlign, row_end too unless it is shape.rows. `out` is the whole encoding,
  // encoded_size(shape) bytes; calls for disjoint ranges write disjoint bytes.
  void (*encode_rows)(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                      uint8_t* out);

  // Layouts with a field over all rows (q8_2f); null for others. add_column_block sums the
  // num_rows <= kColumnBlockRows rows of one block into sums[cols] (which it overwrites); the sums
  // of all blocks, [blocks * cols] in row order, then make the field, before any encode_rows.
  void (*add_column_block)(const float* values, uint64_t num_rows, uint64_t cols, double* sums);
  void (*finish_columns)(std::span<const double> sums, MatrixShape shape, uint8_t* out);
};

inline constexpr uint64_t kEncodeRowAlign = 32;
inline constexpr uint64_t kColumnBlockRows = 256;

// The codec of `dtype`, or null if moewe does not decode it yet.
const Codec* FindCodec(DType dtype);

// All dtypes that have a codec, in on-disk id order.
std::span<const Codec* const> AllCodecs();

// All rows as f32. Validates first. Throws Error{kUnsupported} for a dtype without a codec.
std::vector<float> Decode(DType dtype, Bytes bytes, MatrixShape shape, const Where& where);

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_CODEC_H_
