// The ways of reading that OpenDiskReader chooses from.
#ifndef MOEWE_PLATFORM_DISK_METHODS_H_
#define MOEWE_PLATFORM_DISK_METHODS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "platform/disk_files.h"
#include "platform/disk_reader.h"

namespace moewe {

// A thread for each read in flight; fewer if the system gives no more (DiskInfo::depth). Throws
// Error{kOutOfBudget} if it gives none.
std::unique_ptr<DiskReader> MakePreadReader(DiskFiles files, uint32_t depth);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_METHODS_H_
