// The header of a safetensors file that is to be written.
#ifndef MOEWE_FORMATS_SAFETENSORS_SAFETENSORS_HEADER_H_
#define MOEWE_FORMATS_SAFETENSORS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "quant/dtype.h"

namespace moewe::formats {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kF32;  // f32, f16 or bf16
  std::vector<uint64_t> shape;
  uint64_t nbytes = 0;
};

// The order in which the format's own library lays tensors out: by alignment of the element type,
// largest first, then by name.
bool SafetensorsOrder(const SafetensorsTensor& a, const SafetensorsTensor& b);

// Header length, JSON and padding to 8 bytes, as that library writes them; the tensors' bytes
// follow in the given order without gaps. Throws Error{kBounds} for a header beyond the format's
// limit.
std::string SafetensorsHeaderBytes(const std::vector<SafetensorsTensor>& tensors,
                                   const std::map<std::string, std::string>& metadata);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_SAFETENSORS_SAFETENSORS_HEADER_H_
