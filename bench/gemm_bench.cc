#include "gemm_bench.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "dot_peak.h"
#include "kernels/compute.h"
#include "quant/codec.h"

namespace moewe::kernels {
namespace {

constexpr uint32_t kSize = 4096;  // rows and columns: 9 MB of 4-bit codes

std::vector<float> Noise(size_t count, float deviation) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `GMAC/s`; in turn with it the dot products alone (`peak`), and what the product reaches of them
// (`share`). Quantizing the activations is part of the product.
void BM_Gemm(benchmark::State& state, DType dtype, ThreadPool& pool) {
  const auto n = static_cast<size_t>(state.range(0));
  std::vector<uint8_t> bytes;
  quant::FindCodec(dtype)->encode(Noise(size_t{kSize} * kSize, 0.02f), {kSize, kSize}, &bytes);
  const std::vector<float> x = Noise(n * kSize, 1.0f);
  std::vector<float> y(n * kSize);
  const Projection projection{
      .w = {dtype, kSize, kSize, Bytes(bytes)}, .y = y.data(), .y_stride = kSize};
  Compute compute(&pool, Activations::kInt8);
  double product_seconds = 0;
  double peak_seconds = 0;
  double dots = 0;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    compute.Project({&projection, 1}, x.data(), n, kSize);
    const double seconds = Since(start);
    benchmark::DoNotOptimize(y.data());
    start = std::chrono::steady_clock::now();
    dots += static_cast<double>(RunDots(pool));
    peak_seconds += Since(start);
    product_seconds += seconds;
    state.SetIterationTime(seconds);
  }
  const double rate = static_cast<double>(n) * kSize * kSize *
                      static_cast<double>(state.iterations()) / product_seconds;
  state.counters["GMAC/s"] = rate / 1e9;
  if (DotInstruction() == nullptr) return;
  state.counters["peak"] = dots / peak_seconds / 1e9;
  state.counters["share"] = rate * peak_seconds / dots;
}

}  // namespace

void RegisterGemm(ThreadPool& pool) {
  for (DType dtype : {DType::kQ4tp, DType::kQ4Tiled, DType::kQ4Block, DType::kSmoeQ4}) {
    const std::string name = "BM_Gemm/" + std::string(DTypeName(dtype));
    benchmark::RegisterBenchmark(
        name.c_str(), [dtype, &pool](benchmark::State& state) { BM_Gemm(state, dtype, pool); })
        ->Arg(32)
        ->Arg(512)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime();
  }
  benchmark::AddCustomContext("dots", DotInstruction() == nullptr ? "none" : DotInstruction());
}

}  // namespace moewe::kernels
