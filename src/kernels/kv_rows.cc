#include "kernels/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/f16.h"

namespace moewe::kernels {
namespace {

void StoreQ8Group(const float* x, size_t n, uint8_t* group) {
  float largest = 0.0f;
  bool finite = true;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  const uint16_t scale = finite ? F32ToF16(largest / 127.0f) : uint16_t{0x7E00};  // NaN
  std::memcpy(group, &scale, sizeof(scale));
  const float stored = F16ToF32(scale);
  const float inverse = finite && stored > 0.0f ? 1.0f / stored : 0.0f;
  auto* values = reinterpret_cast<int8_t*>(group + 2);
  for (size_t i = 0; i < kKvGroup; ++i) {
    const float value = i < n && finite ? x[i] * inverse : 0.0f;
    values[i] = static_cast<int8_t>(std::lrint(std::clamp(value, -127.0f, 127.0f)));
  }
}

}  // namespace

void StoreKvRow(KvType type, const float* x, size_t n, void* row) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(row, x, n * sizeof(float));
      return;
    case KvType::kF16:
      for (size_t i = 0; i < n; ++i) static_cast<uint16_t*>(row)[i] = F32ToF16(x[i]);
      return;
    case KvType::kQ8:
      auto* group = static_cast<uint8_t*>(row);
      for (size_t i = 0; i < n; i += kKvGroup, group += kKvGroupBytes) {
        StoreQ8Group(x + i, std::min(kKvGroup, n - i), group);
      }
      return;
  }
}

}  // namespace moewe::kernels
