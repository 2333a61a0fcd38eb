// Whole pages around pieces of files, as disk reads take them, and pieces whose pages come with one
// read.
#ifndef MOEWE_PLATFORM_DISK_PAGES_H_
#define MOEWE_PLATFORM_DISK_PAGES_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/byte_reader.h"
#include "platform/disk_reader.h"

namespace moewe {

// Of the page that the offset lies in.
inline uint64_t PageBegin(uint64_t offset) { return offset / kDiskAlignment * kDiskAlignment; }

// Of the last page that [offset, offset + bytes) needs; nothing if it does not fit 64 bits.
inline std::optional<uint64_t> PageEnd(uint64_t offset, uint64_t bytes) {
  const std::optional<uint64_t> end = CheckedAdd(offset, bytes);
  const std::optional<uint64_t> up = end ? CheckedAdd(*end, kDiskAlignment - 1) : std::nullopt;
  return up ? std::optional(PageBegin(*up)) : std::nullopt;
}

// Pages of a file that lie side by side, read to one place of a memory.
struct PageRun {
  uint32_t file = 0;
  uint64_t begin = 0;  // a multiple of kDiskAlignment, like `end`
  uint64_t end = 0;
  uint64_t needed_end = 0;  // of the last byte that is needed
  uint64_t place = 0;       // of `begin` in the memory

  // Takes [offset, offset + bytes) in as well, whose pages end at `page_end`, if they touch or
  // overlap what is there; it begins no earlier than what was added before.
  bool Add(uint32_t other_file, uint64_t offset, uint64_t bytes, uint64_t page_end) {
    if (other_file != file || PageBegin(offset) > end) return false;
    end = std::max(end, page_end);
    needed_end = std::max(needed_end, offset + bytes);
    return true;
  }
};

// Memory aligned for disk reads.
struct FreeDiskMemory {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using DiskMemory = std::unique_ptr<uint8_t, FreeDiskMemory>;

// `bytes` and `alignment`, its power of two, are multiples of kDiskAlignment. Null if there is no
// memory.
inline DiskMemory AllocateDiskMemory(uint64_t bytes, uint64_t alignment = kDiskAlignment) {
  return DiskMemory(static_cast<uint8_t*>(std::aligned_alloc(alignment, bytes)));
}

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_PAGES_H_
