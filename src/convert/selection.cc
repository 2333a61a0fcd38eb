#include "convert/selection.h"

#include "quant/gather.h"

namespace moewe::convert {

quant::MatrixShape Selection::Of(quant::MatrixShape shape) const {
  if (axis == Axis::kRows) shape.rows = kept->size();
  if (axis == Axis::kColumns) shape.cols = kept->size();
  return shape;
}

std::vector<uint64_t> Selection::Of(std::vector<uint64_t> shape) const {
  if (axis == Axis::kRows) shape.front() = kept->size();
  if (axis == Axis::kColumns) shape.back() = kept->size();
  return shape;
}

bool CanGather(const formats::TensorView& tensor, const Selection& selection) {
  if (selection.zeros) return false;
  return selection.axis == Selection::Axis::kRows
             ? quant::CanGatherRows(tensor.dtype, tensor.matrix())
             : quant::CanGatherColumns(tensor.dtype, tensor.matrix());
}

std::optional<std::vector<uint8_t>> Gather(const formats::TensorView& tensor,
                                           const Selection& selection, const Where& where) {
  if (!CanGather(tensor, selection)) return std::nullopt;
  quant::FindCodec(tensor.dtype)->validate(tensor.bytes, tensor.matrix(), where);
  return selection.axis == Selection::Axis::kRows
             ? quant::GatherRows(tensor.dtype, tensor.bytes, tensor.matrix(), *selection.kept)
             : quant::GatherColumns(tensor.dtype, tensor.bytes, tensor.matrix(), *selection.kept);
}

}  // namespace moewe::convert
