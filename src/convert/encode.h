// One tensor from its stored dtype to another, by row blocks on a thread pool.
#ifndef MOEWE_CONVERT_ENCODE_H_
#define MOEWE_CONVERT_ENCODE_H_

#include <vector>

#include "convert/selection.h"
#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// What `selection` keeps of `tensor` as `dtype`. The bytes do not depend on the number of threads;
// `where` goes into errors. Throws Error{kUnsupported} if one of them cannot be decoded or encoded.
std::vector<uint8_t> EncodeTensor(const formats::TensorView& tensor, DType dtype,
                                  const quant::EncodeOptions& options, ThreadPool& pool,
                                  const Where& where, const Selection& selection = {});

// The size of what EncodeTensor makes, without making it: also where only the data tells.
uint64_t EncodedSize(const formats::TensorView& tensor, DType dtype,
                     const quant::EncodeOptions& options, ThreadPool& pool, const Where& where,
                     const Selection& selection = {});

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_ENCODE_H_
