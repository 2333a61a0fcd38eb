// The integer path on AVX2 for vbit, vbit_ro, q1, q1s and q1t.
//
// Rows of vbit differ in width, so a row is a walk of its own: four groups a step, whose sums are
// the four chains of the rule in one 128-bit vector. A decoder makes 32 unsigned bytes of a group,
// in natural order, weight = code - kOffset.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "kernels/int8.h"
#include "kernels/layout.h"
#include "kernels/overlay.h"

#define MOEWE_TARGET "avx2,fma,f16c"
#include "kernels/target_begin.h"

namespace moewe::kernels {
namespace {

MOEWE_INLINE __m256i Load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
MOEWE_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
MOEWE_INLINE __m256i Pair(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(Load128(low)), Load128(high), 1);
}

// ---- decoders ----
//
// kGroupBytes: of packed codes, one group after another. kReadBytes: how far past the first of four
// groups a step reads. Codes(p): a group; Scales(codes, scales): of four groups.

// Shuffles and factors that bring code k of a lane to the top of its 16 bits: the codes are a
// stream of kWidth bits each, most significant bit first; lane 0 and lane 1 have 16 codes of their
// own, of which `first` = 0 or 8 and the next 7 are taken.
template <int kWidth>
struct Windows {
  alignas(32) uint8_t shuffle[2][32] = {};
  alignas(32) uint16_t factor[16] = {};
  constexpr Windows() {
    for (int lane = 0; lane < 2; ++lane) {
      for (int k = 0; k < 8; ++k) {
        factor[lane * 8 + k] = static_cast<uint16_t>(1 << (k * kWidth % 8));
        for (int half = 0; half < 2; ++half) {
          const int byte = (half * 8 + k) * kWidth / 8;
          shuffle[half][lane * 16 + 2 * k] = static_cast<uint8_t>(byte + 1);
          shuffle[half][lane * 16 + 2 * k + 1] = static_cast<uint8_t>(byte);
        }
      }
    }
  }
};

template <int kWidth>
struct VbitCodes {
  static constexpr size_t kGroupBytes = 4 * kWidth;
  static constexpr size_t kReadBytes = 3 * kGroupBytes + 2 * kWidth + 16;
  static constexpr int kMaxCode = (1 << kWidth) - 1;
  static constexpr int kOffset = (1 << (kWidth - 1)) - 1;
  static constexpr bool kTiles = false;  // scales lie apart
  static constexpr Windows<kWidth> kWindows{};

  static MOEWE_INLINE __m256i Codes(const uint8_t* p) {
    const __m256i v = Pair(p, p + 2 * kWidth);
    const __m256i factor = Load(kWindows.factor);
    const __m256i a = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, Load(kWindows.shuffle[0])), factor);
    const __m256i b = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, Load(kWindows.shuffle[1])), factor);
    return _mm256_packus_epi16(_mm256_srli_epi16(a, 16 - kWidth),
                               _mm256_srli_epi16(b, 16 - kWidth));
  }
  static MOEWE_INLINE __m128 Scales(const uint8_t*, const uint8_t* scales) {
    return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
  }
};

struct VbitBytes : VbitCodes<8> {
  static constexpr size_t kReadBytes = 4 * kGroupBytes;
  static MOEWE_INLINE __m256i Codes(const uint8_t* p) { return Load(p); }
};

// Scales of four tiles of kBytes each.
template <int kBytes>
MOEWE_INLINE __m128 TileScales(const uint8_t* p) {
  const __m128i two =
      _mm_setr_epi8(0, 1, kBytes, kBytes + 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  return _mm_cvtph_ps(_mm_unpacklo_epi32(_mm_shuffle_epi8(Load128(p), two),
                                         _mm_shuffle_epi8(Load128(p + 2 * kBytes), two)));
}

struct SignCodes {  // code 2 or 0
  static constexpr size_t kGroupBytes = kSignTileBytes;
  static constexpr size_t kReadBytes = 2 * kGroupBytes + 16;
  static constexpr int kMaxCode = 2;
  static constexpr int kOffset = 1;
  static constexpr bool kTiles = true;

  static MOEWE_INLINE __m256i Codes(const uint8_t* p) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                            2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ULL));
    const __m256i v = _mm256_set1_epi32(static_cast<int>(LoadU32(p + 2)));
    const __m256i set =
        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(v, spread), bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(2));
  }
  static MOEWE_INLINE __m128 Scales(const uint8_t* codes, const uint8_t*) {
    return TileScales<kSignTileBytes>(codes);
  }
};

// Digit k of a byte v is floor(3 * fraction of v / 3^(k + 1)); 16 bits of fraction, rounded up, are
// enough for every v.
struct TernaryTables {
  alignas(32) uint8_t spread[2][32] = {};
  alignas(32) uint16_t inverse[2][16] = {};
  constexpr TernaryTables() {
    constexpr uint16_t kInverse[5] = {21846, 7282, 2428, 810, 270};  // 2^16 / 3^(k + 1), up
    for (int i = 0; i < 32; ++i) {
      const int half = i / 8 % 2;
      const int at = i / 16 * 8 + i % 8;
      spread[half][2 * at] = static_cast<uint8_t>(2 + i / 5);
      spread[half][2 * at + 1] = 0x80;
      inverse[half][at] = kInverse[i % 5];
    }
  }
};

struct TernaryCodes {  // weight + 1
  static constexpr size_t kGroupBytes = kTernaryTileBytes;
  static constexpr size_t kReadBytes = 3 * kGroupBytes + 16;
  static constexpr int kMaxCode = 2;
  static constexpr int kOffset = 1;
  static constexpr bool kTiles = true;

  static constexpr TernaryTables kTables{};

  static MOEWE_INLINE __m256i Codes(const uint8_t* p) {
    const __m256i v = _mm256_broadcastsi128_si256(Load128(p));
    const __m256i three = _mm256_set1_epi16(3);
    __m256i digit[2];
    for (int half = 0; half < 2; ++half) {
      const __m256i fraction = _mm256_mullo_epi16(
          _mm256_shuffle_epi8(v, Load(kTables.spread[half])), Load(kTables.inverse[half]));
      digit[half] = _mm256_mulhi_epu16(fraction, three);
    }
    const __m256i code = _mm256_setr_epi8(1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                          1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm256_shuffle_epi8(code, _mm256_packus_epi16(digit[0], digit[1]));
  }
  static MOEWE_INLINE __m128 Scales(const uint8_t* codes, const uint8_t*) {
    return TileScales<kTernaryTileBytes>(codes);
  }
};

// ---- sums ----

// Sums of codes times activations of four groups. The 16-bit sums of 2, 4 and 8 products are exact
// for codes up to 32; larger ones go to 32 bits earlier.
template <int kMaxCode>
MOEWE_INLINE __m128i GroupSums(const __m256i (&codes)[4], const uint8_t* x) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i s[4];
  for (int i = 0; i < 4; ++i) {
    const __m256i q = Load(x + i * 32);
    if constexpr (kMaxCode > 127) {
      // Signed weights code - 128: |w| times x with w's sign (activations are never -128).
      const __m256i w = _mm256_xor_si256(codes[i], _mm256_set1_epi8(-128));
      s[i] = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
    } else {
      s[i] = _mm256_maddubs_epi16(codes[i], q);
    }
    if constexpr (kMaxCode > 32) s[i] = _mm256_madd_epi16(s[i], ones);
  }
  __m256i sums;
  if constexpr (kMaxCode > 32) {
    const __m256i t01 =
        _mm256_add_epi32(_mm256_unpacklo_epi32(s[0], s[1]), _mm256_unpackhi_epi32(s[0], s[1]));
    const __m256i t23 =
        _mm256_add_epi32(_mm256_unpacklo_epi32(s[2], s[3]), _mm256_unpackhi_epi32(s[2], s[3]));
    sums = _mm256_add_epi32(_mm256_unpacklo_epi64(t01, t23), _mm256_unpackhi_epi64(t01, t23));
  } else {
    const __m256i t01 =
        _mm256_add_epi16(_mm256_unpacklo_epi16(s[0], s[1]), _mm256_unpackhi_epi16(s[0], s[1]));
    const __m256i t23 =
        _mm256_add_epi16(_mm256_unpacklo_epi16(s[2], s[3]), _mm256_unpackhi_epi16(s[2], s[3]));
    const __m256i halves =
        _mm256_add_epi16(_mm256_unpacklo_epi32(t01, t23), _mm256_unpackhi_epi32(t01, t23));
    const __m256i pair_up =
        _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,  //
                         0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    sums = _mm256_madd_epi16(_mm256_shuffle_epi8(halves, pair_up), ones);
  }
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

// One row times T activation rows. `end`: of the matrix's bytes.
template <class Decoder, int T>
void RowTimesTokens(const uint8_t* codes, const uint8_t* scales, const uint8_t* end, size_t groups,
                    const uint8_t* const* x, size_t padded, float* out) {
  // 8-bit codes are taken as code - 128.
  constexpr int kOffset = Decoder::kMaxCode > 127 ? Decoder::kOffset - 128 : Decoder::kOffset;
  const __m128i offset = _mm_set1_epi32(kOffset & 0xFFFF);
  __m128 acc[T];
  for (int t = 0; t < T; ++t) acc[t] = _mm_setzero_ps();
  const auto step = [&](const uint8_t* p, const uint8_t* s,
                        size_t g) __attribute__((always_inline)) {
    __m256i c[4];
    for (size_t i = 0; i < 4; ++i) c[i] = Decoder::Codes(p + i * Decoder::kGroupBytes);
    const __m128 weight_scales = Decoder::Scales(p, s);
    for (int t = 0; t < T; ++t) {
      // Sums of activations fit 16 bits.
      const __m128i less = _mm_madd_epi16(Load128(x[t] + padded * 48 + g * 4), offset);
      const __m128i sums = _mm_sub_epi32(GroupSums<Decoder::kMaxCode>(c, x[t] + g * kGroup), less);
      const __m128 dx = _mm_loadu_ps(reinterpret_cast<const float*>(x[t] + padded * 32 + g * 4));
      acc[t] = _mm_fmadd_ps(_mm_cvtepi32_ps(sums), _mm_mul_ps(weight_scales, dx), acc[t]);
    }
  };
  constexpr size_t kStepBytes = 4 * Decoder::kGroupBytes;
  size_t g = 0;
  for (; g + 4 <= groups && static_cast<size_t>(end - codes) >= Decoder::kReadBytes;
       g += 4, codes += kStepBytes, scales += Decoder::kTiles ? 0 : 8) {
    if constexpr (T == 1) {
      PrefetchLines(codes + kAheadBytes, (kStepBytes + kCacheLine - 1) / kCacheLine);
      if (!Decoder::kTiles) PrefetchLines(scales + kAheadBytes / 4, 1);
    }
    step(codes, scales, g);
  }
  // What is left of the row, or must not be read past, with zeros behind it.
  for (; g < groups; g += 4, codes += kStepBytes, scales += Decoder::kTiles ? 0 : 8) {
    alignas(32) uint8_t codes_left[kStepBytes + 32] = {};
    alignas(32) uint8_t scales_left[8] = {};
    const size_t live = groups - g < 4 ? groups - g : 4;
    std::memcpy(codes_left, codes, live * Decoder::kGroupBytes);
    if (!Decoder::kTiles) std::memcpy(scales_left, scales, live * 2);
    step(codes_left, scales_left, g);
  }
  for (int t = 0; t < T; ++t) {
    const __m128 pairs = _mm_add_ps(acc[t], _mm_movehl_ps(acc[t], acc[t]));  // c0 + c2, c1 + c3
    out[t] = _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
  }
}

template <class Decoder>
void RowTimesAll(const uint8_t* codes, const uint8_t* scales, const uint8_t* end, size_t groups,
                 const uint8_t* const* x, size_t n, size_t padded, float* out) {
  size_t t = 0;
  for (; t + 4 <= n; t += 4) {
    RowTimesTokens<Decoder, 4>(codes, scales, end, groups, x + t, padded, out + t);
  }
  for (; t < n; ++t) {
    RowTimesTokens<Decoder, 1>(codes, scales, end, groups, x + t, padded, out + t);
  }
}

void OneRow(const Matrix& w, uint32_t row, const uint8_t* const* x, size_t n, size_t padded,
            float* out) {
  const size_t groups = w.cols / kGroup;
  const uint8_t* end = w.bytes.data() + w.bytes.size();
  const auto tiles = [&](size_t tile_bytes) { return w.bytes.data() + row * groups * tile_bytes; };
  switch (w.dtype) {
    case DType::kQ1:
    case DType::kQ1s:
      return RowTimesAll<SignCodes>(tiles(kSignTileBytes), nullptr, end, groups, x, n, padded, out);
    case DType::kQ1t:
      return RowTimesAll<TernaryCodes>(tiles(kTernaryTileBytes), nullptr, end, groups, x, n, padded,
                                       out);
    default:
      break;
  }
  const VbitLayout layout(w);
  const uint8_t* codes = layout.Row(row);
  const uint8_t* scales = layout.scales + row * groups * 2;
  switch (layout.widths[row]) {
    case 3:
      return RowTimesAll<VbitCodes<3>>(codes, scales, end, groups, x, n, padded, out);
    case 4:
      return RowTimesAll<VbitCodes<4>>(codes, scales, end, groups, x, n, padded, out);
    case 5:
      return RowTimesAll<VbitCodes<5>>(codes, scales, end, groups, x, n, padded, out);
    case 6:
      return RowTimesAll<VbitCodes<6>>(codes, scales, end, groups, x, n, padded, out);
    default:
      return RowTimesAll<VbitBytes>(codes, scales, end, groups, x, n, padded, out);
  }
}

constexpr size_t kTokens = 64;  // whose results are held at once

}  // namespace

void PlainAvx2(const Matrix& w, uint32_t row_begin, uint32_t row_end, const uint8_t* const* x,
               size_t n, float* const* y, float*, const NextRows&) {
  const size_t padded = PreparedRow::PaddedGroups(w.cols);
  for (size_t first = 0; first < n; first += kTokens) {
    const size_t count = n - first < kTokens ? n - first : kTokens;
    Overlay overlay(w, row_begin);
    float out[kTokens];
    for (uint32_t row = row_begin; row < row_end; ++row) {
      OneRow(w, row, x + first, count, padded, out);
      overlay.ForRow(row, [&](size_t col, float delta) {
        for (size_t t = 0; t < count; ++t) {
          out[t] = AddOverlay(out[t], delta, x[first + t], padded, col);
        }
      });
      for (size_t t = 0; t < count; ++t) y[first + t][row - row_begin] = out[t];
    }
  }
}

}  // namespace moewe::kernels

#include "kernels/target_end.h"
#endif  // __x86_64__
