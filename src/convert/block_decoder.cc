#include "convert/block_decoder.h"

namespace moewe::convert {

void BlockDecoder::Decode(uint64_t begin, uint64_t end, float* values) const {
  if (selection_.zeros) {
    std::fill_n(values, (end - begin) * shape_.cols, 0.0f);
    return;
  }
  if (selection_.axis != Selection::Axis::kRows) {
    values_.DecodeRows(begin, end, values);
    if (selection_.all()) return;
    // In place: a value never moves back over one that is still needed.
    const std::vector<uint32_t>& columns = *selection_.kept;
    float* to = values;
    for (uint64_t row = 0; row < end - begin; ++row) {
      const float* from = values + row * stored_.cols;
      for (const uint32_t column : columns) *to++ = from[column];
    }
    return;
  }
  const std::vector<uint32_t>& rows = *selection_.kept;
  for (uint64_t row = begin; row < end;) {
    uint64_t next = row + 1;  // rows that lie together are decoded together
    while (next < end && rows[next] == rows[row] + (next - row)) ++next;
    values_.DecodeRows(rows[row], rows[row] + (next - row), values + (row - begin) * stored_.cols);
    row = next;
  }
}

}  // namespace moewe::convert
