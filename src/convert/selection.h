// The part of a tensor that a conversion keeps: some of its rows or some of its columns.
#ifndef MOEWE_CONVERT_SELECTION_H_
#define MOEWE_CONVERT_SELECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "formats/checkpoint.h"

namespace moewe::convert {

using Kept = std::shared_ptr<const std::vector<uint32_t>>;  // ascending, distinct

// Of a matrix, or of a vector as one row. A default object keeps everything.
struct Selection {
  enum class Axis : uint8_t { kAll, kRows, kColumns };
  Axis axis = Axis::kAll;
  Kept kept;           // at least one
  bool zeros = false;  // what is kept only holds the place of nothing, and counts as zero

  bool all() const { return axis == Axis::kAll; }
  quant::MatrixShape Of(quant::MatrixShape shape) const;
  // The shape of what is kept of a tensor of `shape`: rows are its first dimension, columns its
  // last.
  std::vector<uint64_t> Of(std::vector<uint64_t> shape) const;
};

// Whether Gather has an answer for a tensor that keeps its dtype.
bool CanGather(const formats::TensorView& tensor, const Selection& selection);

// What is kept of `tensor`, in its own dtype, without decoding. Throws what Codec::validate throws.
std::optional<std::vector<uint8_t>> Gather(const formats::TensorView& tensor,
                                           const Selection& selection, const Where& where);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SELECTION_H_
