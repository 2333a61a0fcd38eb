// How a row of keys or values is stored in the KV cache.
#ifndef MOEWE_KERNELS_KV_ROWS_H_
#define MOEWE_KERNELS_KV_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace moewe::kernels {

// kQ8: int8 with a scale for every 32 elements; a row is groups of [f16 scale][32 int8].
enum class KvType : uint8_t { kF16, kF32, kQ8 };

constexpr const char* KvTypeName(KvType type) {
  return type == KvType::kF32 ? "f32" : type == KvType::kF16 ? "f16" : "q8";
}

inline constexpr size_t kKvGroup = 32;
inline constexpr size_t kKvGroupBytes = 2 + kKvGroup;

// Bytes of a row of `width` elements.
constexpr size_t KvRowBytes(KvType type, size_t width) {
  if (type == KvType::kQ8) return (width + kKvGroup - 1) / kKvGroup * kKvGroupBytes;
  return width * (type == KvType::kF16 ? 2 : 4);
}

// Puts x[n] into a row. kQ8: a group's scale is its largest magnitude / 127, rounded to f16, and
// NaN if one of its values is not finite.
void StoreKvRow(KvType type, const float* x, size_t n, void* row);

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_KV_ROWS_H_
