// Highway's exponential with NaN kept visible. Included once per target.
#if defined(MOEWE_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOEWE_KERNELS_EXP_INL_H_
#undef MOEWE_KERNELS_EXP_INL_H_
#else
#define MOEWE_KERNELS_EXP_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/float_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

// exp(x) for x <= 88; zero below -104. (Highway's own gives zero for NaN.)
HWY_INLINE VF ExpOrNan(DF d, VF x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x)); }

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MOEWE_KERNELS_EXP_INL_H_
