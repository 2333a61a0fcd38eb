// A tensor, or the part of it that is kept, as f32 by blocks of rows on all threads.
#ifndef MOEWE_CONVERT_BLOCK_DECODER_H_
#define MOEWE_CONVERT_BLOCK_DECODER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "convert/selection.h"
#include "formats/checkpoint.h"
#include "formats/tensor_values.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// Everything that it is made of must outlive it; the tensor's bytes are validated.
class BlockDecoder {
 public:
  BlockDecoder(const formats::TensorView& tensor, const Selection& selection, uint64_t block_rows,
               ThreadPool& pool)
      : values_(tensor),
        stored_(tensor.matrix()),
        selection_(selection),
        shape_(selection.Of(stored_)),
        block_rows_(block_rows),
        pool_(pool),
        // Allocated here because tasks must not throw.
        rows_(static_cast<size_t>(pool.num_threads()),
              std::vector<float>(std::min(block_rows, shape_.rows) * stored_.cols)) {}

  // use(values, row_begin, row_end, worker) for every block; rows are those of what is kept.
  template <typename Use>
  void ForBlocks(const Use& use) {
    pool_.Run((shape_.rows + block_rows_ - 1) / block_rows_, [&](size_t block, int worker) {
      float* values = rows_[static_cast<size_t>(worker)].data();
      const uint64_t begin = block * block_rows_;
      const uint64_t end = std::min(begin + block_rows_, shape_.rows);
      Decode(begin, end, values);
      use(static_cast<const float*>(values), begin, end, worker);
    });
  }

 private:
  void Decode(uint64_t begin, uint64_t end, float* values) const;

  formats::TensorValues values_;
  quant::MatrixShape stored_;
  const Selection& selection_;
  quant::MatrixShape shape_;  // of what is kept
  uint64_t block_rows_;
  ThreadPool& pool_;
  std::vector<std::vector<float>> rows_;  // of the block that each worker is at
};

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_BLOCK_DECODER_H_
