// Limits on what a CMF header may state, shared by those who allocate by it.
#ifndef MOEWE_FORMATS_CMF_LIMITS_H_
#define MOEWE_FORMATS_CMF_LIMITS_H_

#include <cstdint>

namespace moewe::formats::cmf {

// Passes over the layers of a looped model.
inline constexpr uint32_t kMaxLoops = 64;

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_LIMITS_H_
