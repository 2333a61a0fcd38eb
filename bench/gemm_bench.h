// Products of many activation rows with one 4-bit matrix, as prefill has them, beside the CPU's
// integer dot products. Part of kernels_bench.
#ifndef MOEWE_BENCH_GEMM_BENCH_H_
#define MOEWE_BENCH_GEMM_BENCH_H_

#include "platform/thread_pool.h"

namespace moewe::kernels {

// BM_Gemm/<dtype>/<rows>. The pool must outlive the benchmarks.
void RegisterGemm(ThreadPool& pool);

}  // namespace moewe::kernels

#endif  // MOEWE_BENCH_GEMM_BENCH_H_
