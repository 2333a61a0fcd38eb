// One tensor from its stored dtype to another, by row blocks on a thread pool.
#ifndef MOEWE_CONVERT_ENCODE_H_
#define MOEWE_CONVERT_ENCODE_H_

#include <vector>

#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// The bytes do not depend on the number of threads. `tensor` has another dtype than `dtype`.
std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  const quant::EncodeOptions& options, ThreadPool& pool);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_ENCODE_H_
