// What the blocks of a layer share while one batch runs.
#ifndef MOEWE_MODEL_STEP_H_
#define MOEWE_MODEL_STEP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "kernels/compute.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/rope_table.h"

namespace moewe::model {

// Scratch memory that only grows, so that after warm-up no step allocates. Contents do not survive
// Need().
template <typename T>
class Scratch {
 public:
  T* Need(size_t n) {
    if (data_.size() < n) data_.resize(n);
    return data_.data();
  }

 private:
  std::vector<T> data_;
};

// Where a row of the batch belongs.
struct StepRow {
  uint32_t chunk = 0;     // index into Step::sequences
  uint32_t position = 0;  // in its sequence
};

struct Step {
  kernels::Compute* compute = nullptr;
  std::span<const StepRow> rows;         // a chunk's rows are adjacent and ascending
  std::span<Sequence* const> sequences;  // one a chunk, with room for its rows reserved
  std::span<const size_t> first_rows;    // of the chunks, and the number of all rows
  std::span<const RopeTable> ropes;      // by ModelConfig::ropes index, for these rows
  ForwardObserver* observer = nullptr;
  const float* residual = nullptr;  // the residual stream [rows, hidden], as it is at any moment
};

// Calls task(row) for each of n rows: over the pool when that is worth a region. Rows are
// independent, so the result does not depend on it.
inline void ForRows(ThreadPool& pool, size_t n, FunctionRef<void(size_t row)> task) {
  constexpr size_t kWorthARegion = 4;
  if (n < kWorthARegion) {
    for (size_t row = 0; row < n; ++row) task(row);
  } else {
    pool.Run(n, [&](size_t row, int) { task(row); });
  }
}

}  // namespace moewe::model

#endif  // MOEWE_MODEL_STEP_H_
