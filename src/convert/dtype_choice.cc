#include "convert/dtype_choice.h"

#include <algorithm>

#include "base/f16.h"

namespace moewe::convert {
namespace {

bool IsExactInF16(const formats::TensorView& tensor) {
  const std::vector<float> values =
      quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {"", tensor.name, {}});
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return F16ToF32(F32ToF16(value)) == value; });
}

}  // namespace

DType ParseQuant(std::string_view name) {
  if (name == "q8") return DType::kQ8Row;
  if (name == "q4") return DType::kQ4Block;
  if (name == "q4t") return DType::kQ4Tiled;
  const std::optional<DType> dtype = DTypeFromName(name);
  const quant::Codec* codec = dtype ? quant::FindCodec(*dtype) : nullptr;
  if (codec == nullptr || codec->encode == nullptr) {
    throw Error(ErrorCode::kUsage, "cannot write dtype '" + std::string(name) +
                                       "'; one of q8, q8_2f, q4, q4t, q4tp, f16, bf16, f32");
  }
  return *dtype;
}

DType ChooseDType(const formats::TensorView& tensor, DType quant) {
  if (tensor.dtype == DType::kU8) return DType::kU8;
  if (quant == DType::kF32) return DType::kF32;
  const quant::MatrixShape matrix = tensor.matrix();
  const std::string_view name = tensor.name;
  if (tensor.shape.size() != 2 || matrix.rows * matrix.cols < 32 ||
      name.ends_with("mlp.gate.weight") || name.ends_with("shared_expert_gate.weight")) {
    const bool sensitive =
        name.ends_with("expert_bias") || name.ends_with("A_log") || name.ends_with("dt_bias");
    return sensitive && !IsExactInF16(tensor) ? DType::kF32 : DType::kF16;
  }
  return quant::FindCodec(quant)->holds(matrix, 2) ? quant : DType::kQ82f;
}

bool GlobMatches(std::string_view glob, std::string_view name) {
  size_t g = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = n;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == name[n])) {
      ++g;
      ++n;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return std::all_of(glob.begin() + static_cast<ptrdiff_t>(g), glob.end(),
                     [](char c) { return c == '*'; });
}

}  // namespace moewe::convert
