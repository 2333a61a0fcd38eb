#include "convert/range_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "convert/block_decoder.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

constexpr uint32_t kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kInfinity = 0x7F800000;
constexpr float kLargestF16 = 65504.0f;

// The largest magnitude as bits, which order like the numbers; NaN is above infinity.
uint32_t LargestBits(const float* values, uint64_t count) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & kMagnitude);
  }
  return largest;
}

// The same of what is kept of a stored tensor.
uint32_t LargestBits(const formats::TensorView& tensor, const Selection& selection,
                     ThreadPool& pool) {
  constexpr uint64_t kRows = 64;
  const uint64_t cols = selection.Of(tensor.matrix()).cols;
  std::vector<uint32_t> largest(static_cast<size_t>(pool.num_threads()));
  BlockDecoder(tensor, selection, kRows, pool)
      .ForBlocks([&](const float* values, uint64_t begin, uint64_t end, int worker) {
        uint32_t& so_far = largest[static_cast<size_t>(worker)];
        so_far = std::max(so_far, LargestBits(values, (end - begin) * cols));
      });
  return *std::max_element(largest.begin(), largest.end());
}

}  // namespace

void CheckRange(const formats::TensorView& tensor, DType dtype, Bytes encoded, ThreadPool& pool,
                const Where& where, const Selection& selection) {
  if (dtype == DType::kF32) return;
  const uint32_t before = LargestBits(tensor, selection, pool);
  // No scale of a layout is larger than the largest value.
  if (before <= std::bit_cast<uint32_t>(kLargestF16)) return;
  const bool stores_floats = dtype == DType::kF16 || dtype == DType::kBf16;
  if (before >= kInfinity) {
    if (stores_floats) return;  // infinity and NaN stay what they are
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} holds a value that is not finite, which {} cannot store; "
                            "--tensor '{}=bf16' keeps it",
                            tensor.name, DTypeName(dtype), tensor.name),
                where);
  }
  formats::TensorView result = tensor;
  result.dtype = dtype;
  result.shape = selection.Of(tensor.shape);
  result.bytes = encoded;
  const uint32_t after = LargestBits(result, {}, pool);
  // One-bit layouts clip outliers by design; others keep the largest value nearly.
  const bool clips = dtype == DType::kQ1 || dtype == DType::kQ1s || dtype == DType::kQ1t;
  constexpr uint32_t kFactorTwo = 1u << 23;
  if (after < kInfinity && (clips || after + kFactorTwo >= before)) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} holds {:g}, which is beyond the range of {}; bf16 or f32 keeps it "
                          "(--tensor '{}=bf16')",
                          tensor.name, std::bit_cast<float>(before), DTypeName(dtype), tensor.name),
              where);
}

void CheckSmoeRange(const formats::TensorView& tensor, ThreadPool& pool, const Where& where) {
  const uint32_t largest = LargestBits(tensor, {}, pool);
  if (largest <= std::bit_cast<uint32_t>(kLargestF16)) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} holds {:g}, which the f16 scales of a vault cannot store",
                          tensor.name, std::bit_cast<float>(largest)),
              where);
}

}  // namespace moewe::convert
