// The integer path on AVX-512 VNNI.
#if defined(__x86_64__)
// GCC 12's own header leaves "undefined" vectors uninitialized on purpose (GCC bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/int8.h"
#include "kernels/ladder.h"
#include "kernels/layout.h"
#include "kernels/prefetch.h"

#define MOEWE_TARGET "avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni"
#include "kernels/target_begin.h"

namespace moewe::kernels {
namespace {
#include "kernels/int8_avx512-inl.h"
#include "kernels/int8_batch_avx512-inl.h"
}  // namespace

const Int8Kernels kInt8Avx512 = {Quantize512, Packed512, Bytes512, PlainAvx2};

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
