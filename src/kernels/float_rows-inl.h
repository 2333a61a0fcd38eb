// Stored float rows as vectors of f32, and dot products of a few of them with a few activation
// rows. Highway: included once per target, no include guard beyond its own.
#if defined(MOEWE_KERNELS_FLOAT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MOEWE_KERNELS_FLOAT_ROWS_INL_H_
#undef MOEWE_KERNELS_FLOAT_ROWS_INL_H_
#else
#define MOEWE_KERNELS_FLOAT_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/kv_rows.h"
#include "kernels/layout.h"

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// How elements [i, i + lanes) of a stored row become f32, i a multiple of lanes; a row may have any
// alignment.
struct StoredF32 {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE VF Load(DF d, const uint8_t* row, size_t i) {
    return hn::LoadU(d, reinterpret_cast<const float*>(row) + i);
  }
};
struct StoredF16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF Load(DF d, const uint8_t* row, size_t i) {
    const hn::Rebind<hwy::float16_t, DF> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(row) + i));
  }
};
struct StoredBf16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF Load(DF d, const uint8_t* row, size_t i) {
    const hn::Rebind<uint16_t, DF> half;
    const hn::Rebind<uint32_t, DF> bits;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(
                              bits, hn::LoadU(half, reinterpret_cast<const uint16_t*>(row) + i))));
  }
};
// KvType::kQ8. A group has whole vectors of any instruction set.
struct StoredQ8 {
  static HWY_INLINE VF Load(DF d, const uint8_t* row, size_t i) {
    const uint8_t* group = row + i / kKvGroup * kKvGroupBytes;
    return Values(d, group, group + 2 + i % kKvGroup);
  }
  static HWY_INLINE VF Values(DF d, const uint8_t* scale, const uint8_t* p) {
    const hn::Rebind<int8_t, DF> bytes;
    const hn::Rebind<int32_t, DF> ints;
    const VF values =
        hn::ConvertTo(d, hn::PromoteTo(ints, hn::LoadU(bytes, reinterpret_cast<const int8_t*>(p))));
    return hn::Mul(values, hn::Set(d, LoadF16(scale)));
  }
};

// The first `count` < lanes elements from i on, the rest zero.
template <class Stored>
HWY_INLINE VF LoadPart(DF d, const uint8_t* row, size_t i, size_t count) {
  alignas(64) uint8_t part[HWY_MAX_BYTES] = {};
  if constexpr (std::is_same_v<Stored, StoredQ8>) {
    const uint8_t* group = row + i / kKvGroup * kKvGroupBytes;
    std::memcpy(part, group + 2 + i % kKvGroup, count);
    return StoredQ8::Values(d, group, part);
  } else {
    std::memcpy(part, row + i * Stored::kBytes, count * Stored::kBytes);
    return Stored::Load(d, part, 0);
  }
}

// out[t][r] = row r . x[t]. The order of additions is the same for every R and T.
template <class Stored, size_t R, size_t T>
HWY_INLINE void DotTile(const uint8_t* const* rows, const float* const* x, size_t cols,
                        float (*out)[R]) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF acc[R][T];
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) acc[r][t] = hn::Zero(d);
  }
  size_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    VF xs[T];
    for (size_t t = 0; t < T; ++t) xs[t] = hn::LoadU(d, x[t] + i);
    for (size_t r = 0; r < R; ++r) {
      const VF w = Stored::Load(d, rows[r], i);
      for (size_t t = 0; t < T; ++t) acc[r][t] = hn::MulAdd(w, xs[t], acc[r][t]);
    }
  }
  if (i < cols) {
    VF xs[T];
    for (size_t t = 0; t < T; ++t) {
      xs[t] = LoadPart<StoredF32>(d, reinterpret_cast<const uint8_t*>(x[t]), i, cols - i);
    }
    for (size_t r = 0; r < R; ++r) {
      const VF w = LoadPart<Stored>(d, rows[r], i, cols - i);
      for (size_t t = 0; t < T; ++t) acc[r][t] = hn::MulAdd(w, xs[t], acc[r][t]);
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t t = 0; t < T; ++t) out[t][r] = hn::GetLane(hn::SumOfLanes(d, acc[r][t]));
  }
}

}  // namespace moewe::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MOEWE_KERNELS_FLOAT_ROWS_INL_H_
