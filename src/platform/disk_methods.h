// The ways of reading that OpenDiskReader chooses from.
#ifndef MOEWE_PLATFORM_DISK_METHODS_H_
#define MOEWE_PLATFORM_DISK_METHODS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "platform/disk_files.h"
#include "platform/disk_reader.h"

namespace moewe {

// Reads in flight, at most: what is asked for or remembered beyond is cut or not believed.
inline constexpr uint32_t kMostDiskDepth = 256;

// Large reads are on their way in pieces of this size at most: side by side, a few MB of them get
// what a disk behind a hypervisor can give, fewer and larger ones half of it.
inline constexpr uint64_t kDiskPiece = uint64_t{256} << 10;

// A thread for each read in flight; fewer if the system gives no more (DiskInfo::depth). Throws
// Error{kOutOfBudget} if it gives none.
std::unique_ptr<DiskReader> MakePreadReader(DiskFiles files, uint32_t depth);

// Null where the kernel has no io_uring for us (containers forbid it): then `files` is untouched
// and `why_not` says what there is to say. `memory` as in DiskOptions.
std::unique_ptr<DiskReader> MakeUringReader(DiskFiles* files, uint32_t depth,
                                            std::span<uint8_t> memory, std::string* why_not);

// By `method` if that works, else by pread, which its info then says; direct reads in pieces of
// kDiskPiece, which `depth` counts. kAuto: io_uring for direct reads, pread for those through the
// page cache, which keep a CPU busy with copying.
std::unique_ptr<DiskReader> MakeDiskReader(DiskFiles files, DiskOptions::Method method,
                                           uint32_t depth, std::span<uint8_t> memory);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_METHODS_H_
