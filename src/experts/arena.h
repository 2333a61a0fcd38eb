// Anonymous memory in huge pages where the system has some: what streamed experts are read into.
#ifndef MOEWE_EXPERTS_ARENA_H_
#define MOEWE_EXPERTS_ARENA_H_

#include <cstdint>
#include <span>

namespace moewe::experts {

// Zeros until written; pages count as memory from their first use on. Starts at a multiple of
// 2 MiB, and stays where it is.
class Arena {
 public:
  // Throws Error{kOutOfBudget} if the system does not give that much.
  explicit Arena(uint64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::span<uint8_t> memory() const { return memory_; }

 private:
  std::span<uint8_t> memory_;
};

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_ARENA_H_
