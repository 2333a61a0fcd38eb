// NumPy's array files (.npy), as far as masks and baked weights need them.
//
// Source: the description of the format in numpy.lib.format (versions 1 to 3).
#ifndef MOEWE_FORMATS_NPY_H_
#define MOEWE_FORMATS_NPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "quant/dtype.h"

namespace moewe::formats {

struct NpyBits {
  std::vector<uint64_t> shape;  // outermost first
  std::vector<uint8_t> values;  // 0 or 1, C order
};

struct NpyFloats {
  std::vector<uint64_t> shape;  // outermost first
  DType dtype = DType::kF32;    // or kF16
  Bytes data;                   // of the file; C order
};

bool IsNpy(Bytes file);

// Elements of a bool or integer array: 0 is false, anything else true. Throws Error{kInvalidMagic},
// Error{kParse} for a malformed header, Error{kBounds} if the data is not what the shape needs,
// Error{kUnsupported} for floats and other element types, and for Fortran order.
NpyBits ParseNpyBits(Bytes file, const std::string& path);

// A float32 or float16 array. Throws the same; Error{kUnsupported} for other element types.
NpyFloats ParseNpyFloats(Bytes file, const std::string& path);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_NPY_H_
