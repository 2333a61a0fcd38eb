// What a fine-tuned checkpoint changed of a backbone, tensor by tensor.
#ifndef MOEWE_CONVERT_SKILL_GRAFT_H_
#define MOEWE_CONVERT_SKILL_GRAFT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/cmf/cmf_file.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// A tensor of the backbone and what the donor has in its place.
struct GraftCandidate {
  formats::TensorView backbone;
  formats::TensorView donor;  // of the same shape
  std::optional<uint32_t> layer;
};

// Pairs every tensor of `backbone` but skills', multi-token prediction's and opaque bytes with the
// donor's of the same canonical name; with `layers`, those of these layers only. In the backbone's
// order. Throws Error{kUsage} if the donor is another model (a tensor is missing, has another
// shape, or the backbone has none of that name) or there is no such layer.
std::vector<GraftCandidate> PairWithDonor(const formats::CmfFile& backbone,
                                          const formats::Checkpoint& donor,
                                          const std::optional<std::vector<uint32_t>>& layers);

// How much the donor changed a tensor, relative to its size:
//   sqrt(max(0, |D - B|^2 - |D - Q(D)|^2)) / |B|
// D: the donor's values; B: the backbone's as they are decoded; Q(D): the donor's encoded as the
// backbone's are. The second term is what encoding alone would do, so that a tensor which the donor
// left alone measures 0 in any dtype, though its quantized copy is different from it. Infinite if
// B is zero and D is not. If that is at most `negligible` without the second term, it is not
// computed. Does not depend on the number of threads. Throws Error{kUnsupported}, also for a
// donor's tensor that is not finite.
double RelativeChange(const GraftCandidate& candidate, double negligible, ThreadPool& pool,
                      const Where& where);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SKILL_GRAFT_H_
