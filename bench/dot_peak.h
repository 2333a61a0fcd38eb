// What the CPU's integer dot product gives at most: nothing but that instruction, in registers.
#ifndef MOEWE_BENCH_DOT_PEAK_H_
#define MOEWE_BENCH_DOT_PEAK_H_

#include <cstddef>

#include "platform/thread_pool.h"

namespace moewe {

// "vpdpbusd, 512 bits", ...: what the integer kernels multiply with here; null where no peak is
// known.
const char* DotInstruction();

// Multiply-adds of int8 that every thread of the pool makes in a call, about a millisecond long;
// how long it took is the caller's to measure. 0 without a DotInstruction().
size_t RunDots(ThreadPool& pool);

}  // namespace moewe

#endif  // MOEWE_BENCH_DOT_PEAK_H_
