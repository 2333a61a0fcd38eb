// Which experts the bits of a mask's expert fields name, in a file that was cut.
//
// Section 11.1 leaves arch.moe.num_experts, which the fields are as wide as, at the count before a
// cut, so that a row has more bits than the layer has experts. A mask whose metadata says
// "expert_numbering": "present" numbers the experts that are there, 0 to k - 1, and its further
// bits mean nothing. Without the key bit i is expert i of num_experts.
#ifndef MOEWE_FORMATS_CMF_EXPERT_NUMBERING_H_
#define MOEWE_FORMATS_CMF_EXPERT_NUMBERING_H_

#include "base/json.h"

namespace moewe::formats::cmf {

inline constexpr char kExpertNumbering[] = "expert_numbering";
inline constexpr char kNumbersPresent[] = "present";

inline bool NumbersPresentExperts(const Json& mask_meta) {
  const auto found = mask_meta.find(kExpertNumbering);
  return found != mask_meta.end() && *found == kNumbersPresent;
}

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_EXPERT_NUMBERING_H_
