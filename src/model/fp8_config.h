// What a Hugging Face config says of weights that are stored as FP8 with a scale a block.
#ifndef MOEWE_MODEL_FP8_CONFIG_H_
#define MOEWE_MODEL_FP8_CONFIG_H_

#include <cstdint>
#include <optional>

#include "model/json_keys.h"

namespace moewe::model {

struct Fp8Blocks {
  uint32_t rows = 0;
  uint32_t cols = 0;
};

// The quantization_config of `keys` if its quant_method is fp8, else nothing. Throws
// Error{kUnsupported} for fp8 without blocks or of another kind than E4M3, {kParse} for blocks that
// are none.
std::optional<Fp8Blocks> ReadFp8Blocks(const JsonKeys& keys);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_FP8_CONFIG_H_
