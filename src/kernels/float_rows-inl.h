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

HWY_BEFORE_NAMESPACE();
namespace moewe::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// How elements [i, i + lanes) of a stored row become f32; p may have any alignment.
struct StoredF32 {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE VF Load(DF d, const uint8_t* p) {
    return hn::LoadU(d, reinterpret_cast<const float*>(p));
  }
};
struct StoredF16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF Load(DF d, const uint8_t* p) {
    const hn::Rebind<hwy::float16_t, DF> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};
struct StoredBf16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VF Load(DF d, const uint8_t* p) {
    const hn::Rebind<uint16_t, DF> half;
    const hn::Rebind<uint32_t, DF> bits;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(
                              bits, hn::LoadU(half, reinterpret_cast<const uint16_t*>(p)))));
  }
};

// The first `count` < lanes elements, the rest zero.
template <class Stored>
HWY_INLINE VF LoadPart(DF d, const uint8_t* p, size_t count) {
  alignas(64) uint8_t part[HWY_MAX_BYTES] = {};
  std::memcpy(part, p, count * Stored::kBytes);
  return Stored::Load(d, part);
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
      const VF w = Stored::Load(d, rows[r] + i * Stored::kBytes);
      for (size_t t = 0; t < T; ++t) acc[r][t] = hn::MulAdd(w, xs[t], acc[r][t]);
    }
  }
  if (i < cols) {
    VF xs[T];
    for (size_t t = 0; t < T; ++t) {
      xs[t] = LoadPart<StoredF32>(d, reinterpret_cast<const uint8_t*>(x[t] + i), cols - i);
    }
    for (size_t r = 0; r < R; ++r) {
      const VF w = LoadPart<Stored>(d, rows[r] + i * Stored::kBytes, cols - i);
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
