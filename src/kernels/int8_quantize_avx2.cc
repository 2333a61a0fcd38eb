// Activations to int8 on AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>
#include <limits>

#include "kernels/int8.h"
#include "kernels/layout.h"

#define MOEWE_TARGET "avx2,f16c"
#include "kernels/target_begin.h"

namespace moewe::kernels {
namespace {

inline __m128i Load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

// One group: values to q, dx and sum; natural order.
inline __m256i QuantizeGroup(const float* x, const uint8_t* col_field, float* dx, int32_t* sum) {
  __m256 v[4];
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i max = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + i * 8);
    if (col_field != nullptr) {
      v[i] = _mm256_mul_ps(v[i], _mm256_cvtph_ps(Load128(col_field + i * 16)));
    }
    max = _mm256_max_epi32(max, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  const int32_t bits = _mm_cvtsi128_si32(m);
  float amax;
  std::memcpy(&amax, &bits, 4);
  *sum = 0;
  *dx = 0;
  if (bits >= 0x7F800000) {
    *dx = std::numeric_limits<float>::quiet_NaN();
    return _mm256_setzero_si256();
  }
  if (amax < 1e-36f) return _mm256_setzero_si256();
  *dx = amax / 127.0f;
  const __m256 inverse = _mm256_set1_ps(127.0f / amax);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i natural =
      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  const __m256i s =
      _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), natural), _mm256_set1_epi16(1));
  __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0xB1));
  *sum = _mm_cvtsi128_si32(h);
  return natural;
}

}  // namespace

void QuantizeAvx2(const float* x, const uint8_t* col_field, size_t count, size_t group, size_t cols,
                  Input input, size_t groups_per_vector, uint8_t* row) {
  const size_t padded = PreparedRow::PaddedGroups(cols);
  const size_t end = group * kGroup + count >= cols ? padded : group + count / kGroup;
  const __m256i split = _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15, 0, 2,
                                         4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  for (size_t g = group; g < end; ++g) {
    const size_t first = (g - group) * kGroup;
    float dx = 0;
    int32_t sum = 0;
    __m256i q = _mm256_setzero_si256();
    if (first + kGroup <= count) {
      q = QuantizeGroup(x + first, col_field == nullptr ? nullptr : col_field + first * 2, &dx,
                        &sum);
    } else if (first < count) {
      float values[kGroup] = {};
      uint8_t field[kGroup * 2] = {};
      std::memcpy(values, x + first, (count - first) * 4);
      if (col_field != nullptr) std::memcpy(field, col_field + first * 2, (count - first) * 2);
      q = QuantizeGroup(values, col_field == nullptr ? nullptr : field, &dx, &sum);
    }
    if (input == Input::kPlain) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + g * kGroup), q);
      std::memcpy(row + padded * 32 + g * 4, &dx, 4);
      std::memcpy(row + padded * 48 + g * 4, &sum, 4);
      continue;
    }
    sum *= SumFactor(input);
    size_t place = g;
    if (input == Input::kOddCrumbs) {
      const __m256i by_phase =
          _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5,
                           9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      alignas(32) uint8_t phases[32];
      _mm256_store_si256(reinterpret_cast<__m256i*>(phases),
                         _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(q, by_phase),
                                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
      uint8_t* first_phase = row + g / 4 * 128 + g % 4 * 8;
      for (size_t phase = 0; phase < 4; ++phase) {
        std::memcpy(first_phase + phase * 32, phases + phase * 8, 8);
      }
      place = CrumbPlace(g);
    } else if (input == Input::kNibbles || input == Input::kOddNibbles) {
      q = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(q, split), 0xD8);
      uint8_t* even =
          row + g / groups_per_vector * groups_per_vector * kGroup + g % groups_per_vector * 16;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(even), _mm256_castsi256_si128(q));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(even + groups_per_vector * 16),
                       _mm256_extracti128_si256(q, 1));
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + g * kGroup), q);
    }
    _mm_storeu_ps(reinterpret_cast<float*>(row + padded * 32 + place * 16), _mm_set1_ps(dx));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + padded * 48 + place * 16),
                     _mm_set1_epi32(sum));
  }
}

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
