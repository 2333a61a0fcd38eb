// Whether an encoding still says what its source said.
#ifndef MOEWE_CONVERT_RANGE_CHECK_H_
#define MOEWE_CONVERT_RANGE_CHECK_H_

#include "base/byte_reader.h"
#include "convert/selection.h"
#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// `encoded` is what `selection` keeps of `tensor`, as `dtype`. Throws Error{kUnsupported} at
// `where` if a value became infinite (beyond the range of f16, of a value or of a scale), or if the
// source holds an infinity or NaN, which only float dtypes can store. Costs one look at the source
// where nothing is large.
void CheckRange(const formats::TensorView& tensor, DType dtype, Bytes encoded, ThreadPool& pool,
                const Where& where, const Selection& selection = {});

// Whether a .smoe encoding can hold `tensor`: its scales are f16, which no larger value and nothing
// infinite fits. Throws Error{kUnsupported} at `where` if not.
void CheckSmoeRange(const formats::TensorView& tensor, ThreadPool& pool, const Where& where);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_RANGE_CHECK_H_
