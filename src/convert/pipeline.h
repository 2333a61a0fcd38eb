// The work of a conversion: encoding on all threads while the tensors before are being written.
#ifndef MOEWE_CONVERT_PIPELINE_H_
#define MOEWE_CONVERT_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "convert/plan.h"
#include "convert/tensor_encoder.h"
#include "formats/checkpoint.h"
#include "formats/cmf/writer.h"

namespace moewe::convert {

// Of what the writer has got: tensors, and bytes of the source.
struct ConvertProgress {
  uint64_t tensors = 0;
  uint64_t tensors_total = 0;
  uint64_t bytes = 0;
  uint64_t bytes_total = 0;
  std::string_view name;  // of the tensor
};

// Gives the writer every tensor that it has not got, in order. Source bytes are checked against
// their stored hash before use, and dropped from memory after. In memory: the tensor that is being
// encoded and at most kQueueBytes (or one tensor) that wait to be written. `progress` is called on
// the caller's thread after each tensor and may throw to stop: what is complete stays written.
// Throws Error{kHashMismatch, kUnsupported, kNoSpace, kIo}.
void WriteTensors(const formats::Checkpoint& source, const ConvertPlan& plan,
                  formats::CmfWriter& writer, TensorEncoder& encoder,
                  const std::function<void(const ConvertProgress&)>& progress);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_PIPELINE_H_
