// Address space that becomes memory only while it is used.
#ifndef MOEWE_PLATFORM_RESERVED_MEMORY_H_
#define MOEWE_PLATFORM_RESERVED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace moewe {

// Starts at a page. Between GiveBack and the next Use nobody may touch it: the program ends there
// rather than to take zeros for content.
class ReservedMemory {
 public:
  // Throws Error{kOutOfBudget} if there is no room for `bytes`, at least 1.
  explicit ReservedMemory(size_t bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::span<uint8_t> memory() const { return memory_; }

  // Makes it zeros that can be written. Throws Error{kOutOfBudget}.
  void Use();
  // Its content is gone.
  void GiveBack();

 private:
  std::span<uint8_t> memory_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_RESERVED_MEMORY_H_
