#include "convert/dtype_choice.h"

#include <algorithm>
#include <cmath>

#include "base/f16.h"
#include "formats/made_bytes.h"
#include "formats/tensor_values.h"

namespace moewe::convert {
namespace {

// Whether f16 has every value of a tensor: exactly, or at least within its range.
bool FitsF16(const formats::TensorView& tensor, bool exact) {
  const formats::HeldBytes held(tensor);
  const std::vector<float> values = formats::TensorValues(tensor).All({"", tensor.name, {}});
  return std::all_of(values.begin(), values.end(), [exact](float value) {
    const float stored = F16ToF32(F32ToF16(value));
    return exact ? stored == value : std::isfinite(stored) || !std::isfinite(value);
  });
}

// f16 in files made with a quantized dtype: what is no matrix, and what is too small for groups.
bool IsSmall(const formats::TensorView& tensor) {
  const quant::MatrixShape matrix = tensor.matrix();
  return tensor.shape.size() != 2 || matrix.rows * matrix.cols < 32;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16;
}

}  // namespace

DType ParseQuant(std::string_view name) {
  if (name == "q8") return DType::kQ8Row;
  if (name == "q4") return DType::kQ4Block;
  if (name == "q4t") return DType::kQ4Tiled;
  if (name == "vbit") return DType::kVbitRo;  // the same, with rows that are found at once
  const std::optional<DType> dtype = DTypeFromName(name);
  const quant::Codec* codec = dtype ? quant::FindCodec(*dtype) : nullptr;
  if (codec == nullptr || codec->start == nullptr) {
    throw Error(ErrorCode::kUsage,
                "cannot write dtype '" + std::string(name) + "'; one of " + kQuantNames);
  }
  return *dtype;
}

DType ChooseDType(const formats::TensorView& tensor, DType quant) {
  if (tensor.dtype == DType::kU8) return DType::kU8;
  if (quant == DType::kF32) return DType::kF32;
  const std::string_view name = tensor.name;
  if (IsSmall(tensor) || name.ends_with("mlp.gate.weight") ||
      name.ends_with("shared_expert_gate.weight")) {
    const bool sensitive = name.ends_with("expert_bias") || name.ends_with("mlp.gate.bias") ||
                           name.ends_with("A_log") || name.ends_with("dt_bias");
    return FitsF16(tensor, /*exact=*/sensitive) ? DType::kF16 : DType::kF32;
  }
  return HeldDType(tensor, quant);
}

DType HeldDType(const formats::TensorView& tensor, DType wanted) {
  if (IsFloat(wanted)) return wanted;
  if (IsSmall(tensor)) return DType::kF16;
  return quant::FindCodec(wanted)->holds(tensor.matrix(), 2) ? wanted : DType::kQ82f;
}

TensorRule ParseTensorRule(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw Error(ErrorCode::kUsage, "--tensor takes GLOB=DTYPE, not '" + std::string(text) + "'");
  }
  return {std::string(text.substr(0, equals)), ParseQuant(text.substr(equals + 1))};
}

bool RuleMatches(std::string_view glob, std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  return GlobMatches(glob, name) ||
         (name.ends_with(kWeight) &&
          GlobMatches(glob, name.substr(0, name.size() - kWeight.size())));
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
