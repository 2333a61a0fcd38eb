// One codec a dtype: stored bytes to floats and back (CMF v2 section 3.2, docs/formats/smoe.md).
//
// These are the scalar definitions that every SIMD kernel is tested against; they favour clarity
// over speed, though conversion uses them too. A codec is one file and one line in codec.cc's
// table.
#ifndef MOEWE_QUANT_CODEC_H_
#define MOEWE_QUANT_CODEC_H_

#include <cstdint>
#include <memory>
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

// What may be chosen when a layout is written; each layout looks at its own fields only. The
// defaults give byte for byte what existing CMF writers produce.
struct EncodeOptions {
  // vbit, vbit_ro: the average row width that the allocation aims at, 3..8 bits.
  float mean_bits = 4.25f;
  // vbit, vbit_ro: the width of every row where something else has allocated them (a family of
  // experts that shares a budget); empty = by mean_bits. Must outlive the encoding.
  std::span<const uint8_t> row_bits;
  // q1s: the fraction of weights, by magnitude, that is kept in f16; at most 0.25.
  double keep = 0.01;
  // q1: carry each weight's error on to the next one of its row.
  bool diffuse = false;
  // q4tp: try the neighbours of a tile's nominal scale.
  bool search_scales = true;
};

// One tensor being encoded by blocks of rows. First `scans()` passes over all rows, each ended by
// EndScan; then size() is known, Begin writes what belongs to no row block, and EncodeRows the
// rest. Scan and EncodeRows may be called from any thread for disjoint ranges and depend on nothing
// but the range; everything else from one thread, with no other call at the time.
//
// Ranges start at multiples of kEncodeRowAlign (in a scan: kScanRows), and end at such a multiple
// or at shape.rows. `values` are the rows of the range alone.
class Encoding {
 public:
  virtual ~Encoding() = default;

  virtual int scans() const { return 0; }
  virtual void Scan(int scan, const float* values, uint64_t row_begin, uint64_t row_end);

  // Throws Error{kUnsupported} if the layout cannot address what the scan found.
  virtual void EndScan(int scan);

  virtual uint64_t size() const = 0;       // bytes of the whole encoding
  virtual void Begin(uint8_t* out) const;  // `out`: size() zeroed bytes
  virtual void EncodeRows(const float* values, uint64_t row_begin, uint64_t row_end,
                          uint8_t* out) const = 0;  // `out`: the whole encoding
};

inline constexpr uint64_t kEncodeRowAlign = 64;
inline constexpr uint64_t kScanRows = 256;

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

  // Encodes values[rows * cols] with the default options. Null where moewe does not write the
  // dtype.
  void (*encode)(std::span<const float> values, MatrixShape shape, std::vector<uint8_t>* out);

  // The same in pieces and with options; null where moewe does not write the dtype.
  std::unique_ptr<Encoding> (*start)(MatrixShape shape, const EncodeOptions& options);
};

// The codec of `dtype`, or null if moewe does not decode it yet.
const Codec* FindCodec(DType dtype);

// All dtypes that have a codec, in order of their ids.
std::span<const Codec* const> AllCodecs();

// All of values[rows * cols] by one thread.
std::vector<uint8_t> Encode(const Codec& codec, std::span<const float> values, MatrixShape shape,
                            const EncodeOptions& options = {});

// All rows as f32. Validates first. Throws Error{kUnsupported} for a dtype without a codec.
std::vector<float> Decode(DType dtype, Bytes bytes, MatrixShape shape, const Where& where);

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_CODEC_H_
