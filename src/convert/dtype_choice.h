// Which dtype each tensor of a converted file gets.
#ifndef MOEWE_CONVERT_DTYPE_CHOICE_H_
#define MOEWE_CONVERT_DTYPE_CHOICE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"

namespace moewe::convert {

// The dtype that --quant NAME asks for: q8, q4, q4t and the names of section 3.1. Throws
// Error{kUsage} for one that moewe does not write.
DType ParseQuant(std::string_view name);

// The dtype of `tensor` in a file made with `quant`: f32 keeps everything f32; otherwise vectors,
// tensors under 32 elements, tensors that are no matrix, routers and shared-expert gates are f16
// (biases of selection, A_log and dt_bias f32 where f16 is not exact), and matrices that a grouped
// layout cannot hold are q8_2f.
DType ChooseDType(const formats::TensorView& tensor, DType quant);

// Whether shell-style `glob` (* and ?) matches all of `name`.
bool GlobMatches(std::string_view glob, std::string_view name);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_DTYPE_CHOICE_H_
