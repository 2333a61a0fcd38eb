// Large reads in pieces that are on their way at the same time. A disk behind a network or a
// hypervisor gives a few large reads less than the same bytes in many: the last reads of a layer
// would leave it half idle.
#ifndef MOEWE_PLATFORM_SPLIT_READER_H_
#define MOEWE_PLATFORM_SPLIT_READER_H_

#include <cstdint>
#include <memory>

#include "platform/disk_reader.h"

namespace moewe {

// Pieces of at most `piece` bytes, a multiple of kDiskAlignment. What `reader` counts as reads, its
// depth for example, are pieces. A read has failed if one of its pieces has.
std::unique_ptr<DiskReader> SplitReads(std::unique_ptr<DiskReader> reader, uint64_t piece);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_SPLIT_READER_H_
