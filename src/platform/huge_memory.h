// Anonymous memory in huge pages where the system has some: what disks are read into. A direct read
// to small pages is as many pieces for the device, and takes up to three times as long.
#ifndef MOEWE_PLATFORM_HUGE_MEMORY_H_
#define MOEWE_PLATFORM_HUGE_MEMORY_H_

#include <cstdint>
#include <span>

namespace moewe {

// Zeros until written; pages count as memory from their first use on. Starts at a multiple of
// 2 MiB, and stays where it is.
class HugeMemory {
 public:
  // Throws Error{kOutOfBudget} if the system does not give that much.
  explicit HugeMemory(uint64_t bytes);
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::span<uint8_t> memory() const { return memory_; }

 private:
  std::span<uint8_t> memory_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_HUGE_MEMORY_H_
