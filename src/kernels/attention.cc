#include "kernels/attention.h"

#include "kernels/reference.h"

namespace moewe::kernels {

void AttendOne(const AttentionParams& params, const float* q, const KvBlocks& keys,
               const KvBlocks& values, size_t begin, size_t end, float* out) {
  reference::AttendOne(params, q, keys, values, begin, end, out);
}

}  // namespace moewe::kernels
