#include "kernels/int8_emulated.h"
#if defined(__x86_64__)
#define SIMDE_ENABLE_NATIVE_ALIASES
// clang has types of these names, which SIMDe 0.7 would define again. Nothing here needs them.
#include <emmintrin.h>
#define __m128bh simde_alias_m128bh
#define __m256bh simde_alias_m256bh
#define __m512bh simde_alias_m512bh
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>
#undef __m128bh
#undef __m256bh
#undef __m512bh

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ladder.h"
#include "kernels/layout.h"
#include "kernels/prefetch.h"

namespace moewe::kernels {
namespace {

// Intrinsics of the source that SIMDe 0.7 lacks.
using __mmask16 = uint16_t;
using __mmask64 = uint64_t;

inline __m512i _mm512_maskz_loadu_epi8(__mmask64 mask, const void* p) {
  uint8_t bytes[64] = {};
  for (int i = 0; i < 64; ++i) {
    if (mask >> i & 1) bytes[i] = static_cast<const uint8_t*>(p)[i];
  }
  return _mm512_loadu_si512(bytes);
}

inline __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* p) {
  alignas(32) uint8_t halves[32] = {};
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) std::memcpy(halves + 2 * i, static_cast<const uint8_t*>(p) + 2 * i, 2);
  }
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(halves));
}

inline __m512 _mm512_cvtph_ps(__m256i v) {
  alignas(32) uint8_t halves[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(halves), v);
  simde__m512_private out;
  for (int i = 0; i < 16; ++i) out.f32[i] = LoadF16(halves + 2 * i);
  return simde__m512_from_private(out);
}

#if !defined(_mm512_cvtepi32_ps)
inline __m512 CvtEpi32Ps(__m512i v) {
  simde__m512i_private in = simde__m512i_to_private(v);
  simde__m512_private out;
  for (int i = 0; i < 16; ++i) out.f32[i] = static_cast<float>(in.i32[i]);
  return simde__m512_from_private(out);
}
#define _mm512_cvtepi32_ps CvtEpi32Ps
#endif

// SIMDe's own rounds the product, too.
inline __m512 FmaddPs(__m512 a, __m512 b, __m512 c) {
  const simde__m512_private x = simde__m512_to_private(a);
  const simde__m512_private y = simde__m512_to_private(b);
  simde__m512_private z = simde__m512_to_private(c);
  for (int i = 0; i < 16; ++i) z.f32[i] = std::fma(x.f32[i], y.f32[i], z.f32[i]);
  return simde__m512_from_private(z);
}
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps FmaddPs

#define MOEWE_INLINE inline
#include "kernels/int8_avx512-inl.h"
#include "kernels/int8_batch_avx512-inl.h"
}  // namespace

const Int8Kernels kInt8Avx512Emulated = {Quantize512, Packed512, Bytes512, PlainAvx2};

}  // namespace moewe::kernels
#endif  // __x86_64__
