// Reading one safetensors file: [u64 header length][JSON header][data].
//
// As strict as the format's own library: the tensors cover the data section without holes or
// overlaps, every size fits its dtype and shape, no name twice. Source: the safetensors README
// ("Format").
#ifndef MOEWE_FORMATS_SAFETENSORS_SAFETENSORS_H_
#define MOEWE_FORMATS_SAFETENSORS_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "formats/checkpoint.h"
#include "quant/dtype.h"

namespace moewe::formats {

// Headers above this are refused, as by the original library.
inline constexpr uint64_t kSafetensorsHeaderLimit = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // "BF16"
  std::optional<DType> dtype;  // nothing for element types without a codec
  std::vector<uint64_t> shape;
  uint64_t file_offset = 0;  // of the first byte, from the start of the file
  uint64_t nbytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in data order
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;
};

// Whether bytes begin like a safetensors file: a header length that fits and a brace.
bool LooksLikeSafetensors(Bytes file);

// Parses and checks a whole file; `path` is for messages. Throws Error{kBounds} for sizes and
// offsets, Error{kParse} for everything malformed.
SafetensorsHeader ParseSafetensors(Bytes file, const std::string& path);

// A parsed entry as a tensor of `file`, the mapping that it was parsed from; its dtype must be
// known.
TensorView ViewOf(SafetensorsEntry&& entry, Bytes file, uint32_t file_index);

// The same of a dtype without a codec.
OpaqueTensor OpaqueOf(SafetensorsEntry&& entry, Bytes file, uint32_t file_index);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_SAFETENSORS_SAFETENSORS_H_
