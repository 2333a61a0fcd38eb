// The tensor element types: those of CMF v2 (section 3.1), whose numbers are on-disk ids and never
// reused, and those of .smoe vaults and of safetensors, which no CMF file holds.
#ifndef MOEWE_QUANT_DTYPE_H_
#define MOEWE_QUANT_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace moewe {

enum class DType : uint8_t {
  kF32 = 0,
  kF16 = 1,
  kBf16 = 2,
  kQ8Row = 3,
  kQ4Block = 4,
  kU8 = 6,  // opaque bytes: component configs of pipeline containers
  kVbit = 8,
  kQ82f = 9,
  kVbitRo = 10,
  kQ4Tiled = 11,
  kQ1 = 12,
  kQ1s = 13,
  kQ1t = 14,
  kQ4tp = 15,
  kSmoeQ4 = 240,  // experts of .smoe vaults: no ids of CMF
  kSmoeQ2 = 241,
  kF8E4m3 =
      242,  // of safetensors, with scales of blocks (quant/fp8.h): converted, not computed with
};

// "q4tp" for kQ4tp: the names of section 3.1, used in reports and in the directory listing.
// "smoe_q4", "smoe_q2" and "f8_e4m3" for the others.
std::string_view DTypeName(DType dtype);

// Whether a CMF file can hold it.
inline bool IsCmfDType(DType dtype) { return static_cast<uint8_t>(dtype) < 16; }

// The CMF dtype of a name.
std::optional<DType> DTypeFromName(std::string_view name);

// The dtype of a CMF file's id, or nothing for reserved and unknown ids.
std::optional<DType> DTypeFromId(uint8_t id);

}  // namespace moewe

#endif  // MOEWE_QUANT_DTYPE_H_
