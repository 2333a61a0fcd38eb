#include "quant/dtype.h"

#include <array>

namespace moewe {
namespace {

struct NamedDType {
  DType dtype;
  std::string_view name;
};

constexpr std::array kDTypes = {
    NamedDType{DType::kF32, "f32"},
    NamedDType{DType::kF16, "f16"},
    NamedDType{DType::kBf16, "bf16"},
    NamedDType{DType::kQ8Row, "q8_row"},
    NamedDType{DType::kQ4Block, "q4_block"},
    NamedDType{DType::kU8, "u8"},
    NamedDType{DType::kVbit, "vbit"},
    NamedDType{DType::kQ82f, "q8_2f"},
    NamedDType{DType::kVbitRo, "vbit_ro"},
    NamedDType{DType::kQ4Tiled, "q4_tiled"},
    NamedDType{DType::kQ1, "q1"},
    NamedDType{DType::kQ1s, "q1s"},
    NamedDType{DType::kQ1t, "q1t"},
    NamedDType{DType::kQ4tp, "q4tp"},
    NamedDType{DType::kSmoeQ4, "smoe_q4"},
    NamedDType{DType::kSmoeQ2, "smoe_q2"},
    NamedDType{DType::kF8E4m3, "f8_e4m3"},
};

}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const NamedDType& entry : kDTypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "unknown";
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const NamedDType& entry : kDTypes) {
    if (entry.name == name && IsCmfDType(entry.dtype)) return entry.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromId(uint8_t id) {
  for (const NamedDType& entry : kDTypes) {
    if (static_cast<uint8_t>(entry.dtype) == id && IsCmfDType(entry.dtype)) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace moewe
