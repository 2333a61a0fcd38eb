// Which dtype each tensor of a converted file gets.
#ifndef MOEWE_CONVERT_DTYPE_CHOICE_H_
#define MOEWE_CONVERT_DTYPE_CHOICE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"

namespace moewe::convert {

// What --quant takes, for messages.
inline constexpr char kQuantNames[] =
    "q8, q8_2f, q4, q4t, q4tp, vbit, q1, q1s, q1t, f16, bf16, f32";

// One --tensor GLOB=DTYPE.
struct TensorRule {
  std::string glob;
  DType dtype;
};

// "lm_head=q8". Throws Error{kUsage}.
TensorRule ParseTensorRule(std::string_view text);

// Whether a rule's glob means this tensor: it matches the name with or without ".weight".
bool RuleMatches(std::string_view glob, std::string_view name);

// The dtype that --quant NAME asks for: q8, q4, q4t and the names of section 3.1. Throws
// Error{kUsage} for one that moewe does not write.
DType ParseQuant(std::string_view name);

// The dtype of `tensor` in a file made with `quant`: f32 keeps everything f32; otherwise vectors,
// tensors under 32 elements, tensors that are no matrix, routers and shared-expert gates are f16
// (f32 where f16 has not the range, and biases of selection, A_log and dt_bias where it is not
// exact), and matrices that a grouped
// layout cannot hold are q8_2f.
DType ChooseDType(const formats::TensorView& tensor, DType quant);

// `wanted` where its layout can hold `tensor`; else, as existing files have it, f16 for what is no
// matrix or has fewer than 32 elements and q8_2f for matrices.
DType HeldDType(const formats::TensorView& tensor, DType wanted);

// Whether shell-style `glob` (* and ?) matches all of `name`.
bool GlobMatches(std::string_view glob, std::string_view name);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_DTYPE_CHOICE_H_
