// One tensor from its stored dtype to another, by row blocks on a thread pool.
#ifndef MOEWE_CONVERT_ENCODE_H_
#define MOEWE_CONVERT_ENCODE_H_

#include <vector>

#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// The bytes do not depend on the number of threads. `tensor` has another dtype than `dtype`;
// `where` goes into errors. Throws Error{kUnsupported} if one of them cannot be decoded or encoded.
std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  const quant::EncodeOptions& options, ThreadPool& pool,
                                  const Where& where);

// The size of what EncodeTensor makes, without making it: also where only the data tells.
uint64_t EncodedSize(const formats::TensorView& tensor, DType dtype,
                     const quant::EncodeOptions& options, ThreadPool& pool, const Where& where);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_ENCODE_H_
