// Products of one activation row with matrices larger than the caches, as decode sees them, in turn
// with a scan of as many bytes: what counts is the ratio, since the memory's own speed differs from
// machine to machine and from minute to minute.
//
//   [MOEWE_BENCH_THREADS=1] build/release/kernels_bench [--benchmark_filter=q4tp]
//
// With one thread, the CPU column tells the kernels' own speed on a busy machine, too.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gemm_bench.h"
#include "kernels/attention.h"
#include "kernels/compute.h"
#include "platform/memory_scan.h"
#include "platform/thread_pool.h"
#include "quant/codec.h"

namespace moewe::kernels {
namespace {

constexpr size_t kTotalBytes = size_t{320} << 20;
constexpr size_t kPage = 4096;

ThreadPool& Pool() {
  static ThreadPool pool([] {
    const char* threads = std::getenv("MOEWE_BENCH_THREADS");
    return threads == nullptr ? 0 : std::atoi(threads);
  }());
  return pool;
}

// Expert-like FFNs of one dtype, about kTotalBytes together.
struct Experts {
  explicit Experts(DType dtype) {
    const FfnMatrices one = {Encode(dtype, 768, 2048, 1), Encode(dtype, 768, 2048, 2),
                             Encode(dtype, 2048, 768, 3)};
    bytes_each = one.gate.bytes.size() + one.up.bytes.size() + one.down.bytes.size();
    const size_t count = kTotalBytes / bytes_each;
    // Matrices begin at pages, as in files.
    memory.resize(count * (bytes_each + 3 * kPage) + kPage);
    uint8_t* at = memory.data();
    for (size_t i = 0; i < count; ++i) {
      FfnMatrices copy = one;
      for (Matrix* m : {&copy.gate, &copy.up, &copy.down}) {
        at += (kPage - reinterpret_cast<uintptr_t>(at) % kPage) % kPage;
        std::memcpy(at, m->bytes.data(), m->bytes.size());
        m->bytes = Bytes(at, m->bytes.size());
        at += m->bytes.size();
      }
      ffns.push_back(copy);
    }
  }
  Matrix Encode(DType dtype, uint32_t rows, uint32_t cols, uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    std::vector<float> values(size_t{rows} * cols);
    for (float& v : values) v = normal(rng);
    encodings.push_back(std::make_unique<std::vector<uint8_t>>());
    quant::FindCodec(dtype)->encode(values, {rows, cols}, encodings.back().get());
    return {dtype, rows, cols, Bytes(*encodings.back())};
  }
  std::vector<std::unique_ptr<std::vector<uint8_t>>> encodings;
  std::vector<uint8_t> memory;
  std::vector<FfnMatrices> ffns;
  size_t bytes_each = 0;
};

// Wall time counts where several threads work, CPU time where one does.
void UseClock(benchmark::internal::Benchmark* b) {
  b->Unit(benchmark::kMillisecond);
  if (Pool().num_threads() > 1) b->UseRealTime();
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A decode step's experts (8 of them at a time) for one token: every time others, or always the
// same one, which the caches hold. Beside it, in turn, a scan of the same bytes: `scan` is its
// bytes a second, `share` what decoding reaches of it.
void BM_Decode(benchmark::State& state, DType dtype, Activations activations, bool hot) {
  const Experts experts(dtype);
  Compute compute(&Pool(), activations);
  const std::vector<float> x(2048, 0.25f);
  std::vector<float> y(8 * 2048);
  const uint32_t token = 0;
  const std::vector<uint32_t> outs = {0, 1, 2, 3, 4, 5, 6, 7};
  const size_t steps = experts.ffns.size() / 8;
  std::vector<ExpertWork> work(8);
  constexpr size_t kTurn = 16;  // steps between decoding and scanning
  double decode_seconds = 0;
  double scan_seconds = 0;
  std::vector<Bytes> pieces;
  for (auto _ : state) {
    double seconds = 0;
    for (size_t first = 0; first < steps; first += kTurn) {
      const size_t end = std::min(steps, first + kTurn);
      pieces.clear();
      auto start = std::chrono::steady_clock::now();
      for (size_t step = first; step < end; ++step) {
        for (size_t e = 0; e < 8; ++e) {
          work[e] = {experts.ffns[hot ? 0 : e * steps + step], {&token, 1}, {&outs[e], 1}};
        }
        compute.RoutedFfn(work, GateFunction::kSilu, x.data(), 2048, y.data());
      }
      seconds += Since(start);
      // Others than those that decoding has just left in the caches.
      for (size_t step = first; step < end; ++step) {
        for (size_t e = 0; e < 8; ++e) {
          const FfnMatrices& ffn = experts.ffns[hot ? 0 : e * steps + (step + steps / 2) % steps];
          for (const Matrix* m : {&ffn.gate, &ffn.up, &ffn.down}) AddScanPieces(m->bytes, &pieces);
        }
      }
      start = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(ScanMemory(pieces, Pool()));
      scan_seconds += Since(start);
    }
    benchmark::DoNotOptimize(y.data());
    decode_seconds += seconds;
    state.SetIterationTime(seconds);
  }
  const double bytes =
      static_cast<double>(steps * 8 * experts.bytes_each) * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
  state.counters["scan"] = benchmark::Counter(bytes / scan_seconds, benchmark::Counter::kDefaults,
                                              benchmark::Counter::kIs1024);
  state.counters["share"] = scan_seconds / decode_seconds;
}

// n tokens through one expert after another.
void BM_Prefill(benchmark::State& state, DType dtype, Activations activations) {
  const Experts experts(dtype);
  Compute compute(&Pool(), activations);
  const auto n = static_cast<size_t>(state.range(0));
  const std::vector<float> x(n * 2048, 0.25f);
  std::vector<float> y(n * 2048);
  for (auto _ : state) {
    for (size_t e = 0; e < 8; ++e) {
      compute.Ffn(experts.ffns[e], GateFunction::kSilu, x.data(), n, y.data());
    }
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["GMAC/s"] = benchmark::Counter(
      static_cast<double>(n) * 8 * 3 * 768 * 2048 / 1e9 * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void BM_AttendOne(benchmark::State& state) {
  const auto positions = static_cast<size_t>(state.range(0));
  const std::vector<uint16_t> block(32 * 128, 0x3000);
  const std::vector<const void*> blocks((positions + 31) / 32, block.data());
  const KvBlocks kv{blocks, 32, 128, KvType::kF16};
  const std::vector<float> q(128, 0.1f);
  std::vector<float> out(128);
  for (auto _ : state) {
    AttendOne({128, 128, 0.1f, 0.0f, nullptr}, q.data(), kv, kv, 0, positions, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(BM_AttendOne)->Arg(64)->Arg(512);

constexpr DType kDtypes[] = {DType::kQ4tp, DType::kQ4Tiled, DType::kQ4Block, DType::kQ8Row,
                             DType::kQ82f, DType::kVbitRo,  DType::kQ1,      DType::kQ1s,
                             DType::kQ1t,  DType::kSmoeQ4,  DType::kSmoeQ2,  DType::kF16,
                             DType::kBf16, DType::kF32};

benchmark::internal::Benchmark* Register(const std::string& name,
                                         const std::function<void(benchmark::State&)>& run,
                                         const std::vector<int64_t>& args) {
  benchmark::internal::Benchmark* b = benchmark::RegisterBenchmark(name.c_str(), run);
  for (int64_t arg : args) b->Arg(arg);
  b->Unit(benchmark::kMillisecond);
  return b;
}

void RegisterAll() {
  for (DType dtype : kDtypes) {
    for (Activations activations : {Activations::kInt8, Activations::kF32}) {
      const std::string suffix = "/" + std::string(DTypeName(dtype)) + "/" +
                                 (activations == Activations::kInt8 ? "int8" : "f32");
      for (bool hot : {false, true}) {
        Register((hot ? "BM_DecodeHot" : "BM_Decode") + suffix,
                 [=](benchmark::State& s) { BM_Decode(s, dtype, activations, hot); }, {})
            ->UseManualTime();
      }
      Register("BM_Prefill" + suffix,
               [=](benchmark::State& s) { BM_Prefill(s, dtype, activations); }, {32, 512})
          ->Apply(UseClock);
    }
  }
  RegisterGemm(Pool());
}

}  // namespace
}  // namespace moewe::kernels

int main(int argc, char** argv) {
  moewe::kernels::RegisterAll();
  benchmark::AddCustomContext("kernels", moewe::kernels::KernelIsaName());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
