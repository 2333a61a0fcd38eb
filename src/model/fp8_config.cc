#include "model/fp8_config.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace moewe::model {

std::optional<Fp8Blocks> ReadFp8Blocks(const JsonKeys& keys) {
  const std::optional<JsonKeys> quant = keys.Object("quantization_config");
  if (!quant || quant->String("quant_method", "") != "fp8") return {};
  // How activations are quantized where products are computed in FP8; which modules are not.
  quant->Accept({"activation_scheme", "scale_fmt", "modules_to_not_convert", "ignored_layers"});
  const std::string format = quant->String("fmt", "e4m3");
  if (format != "e4m3" && format != "float8_e4m3fn") {
    quant->Unsupported("fmt", fmt::format("'{}' is not supported, only e4m3", format));
  }
  if (!quant->Has("weight_block_size")) {
    quant->Unsupported("weight_block_size",
                       "is missing: fp8 with other scales than those of blocks is not supported");
  }
  constexpr double kMaxBlock = 1 << 20;
  const std::vector<double> sizes = quant->Numbers("weight_block_size", 2, 1.0, kMaxBlock);
  const Fp8Blocks blocks{static_cast<uint32_t>(sizes[0]), static_cast<uint32_t>(sizes[1])};
  if (blocks.rows != sizes[0] || blocks.cols != sizes[1]) {
    quant->Fail("weight_block_size", "must hold integers");
  }
  return blocks;
}

}  // namespace moewe::model
