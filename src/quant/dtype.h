// The tensor element types of CMF v2 (section 3.1). The numbers are on-disk ids and never reused.
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
};

// "q4tp" for kQ4tp: the names of section 3.1, used in reports and in the directory listing.
std::string_view DTypeName(DType dtype);

std::optional<DType> DTypeFromName(std::string_view name);

// The dtype of an on-disk id, or nothing for reserved and unknown ids.
std::optional<DType> DTypeFromId(uint8_t id);

}  // namespace moewe

#endif  // MOEWE_QUANT_DTYPE_H_
