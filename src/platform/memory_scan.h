// Reading memory and doing nothing with it: the speed that no kernel over the same bytes can beat.
#ifndef MOEWE_PLATFORM_MEMORY_SCAN_H_
#define MOEWE_PLATFORM_MEMORY_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_reader.h"
#include "platform/thread_pool.h"

namespace moewe {

// Bytes of a piece at most. Several microseconds each: enough to hide the hand-out, few enough to
// end together.
inline constexpr size_t kScanPiece = 128 * 1024;

// Appends `bytes` to `pieces`, cut so that the threads of a scan stay evenly busy.
void AddScanPieces(Bytes bytes, std::vector<Bytes>* pieces);

// Reads every byte of `pieces` in one parallel region, whose threads take them in order. Returns a
// sum of what was read, so that the reading cannot be left out. No allocation.
uint64_t ScanMemory(std::span<const Bytes> pieces, ThreadPool& pool);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_MEMORY_SCAN_H_
