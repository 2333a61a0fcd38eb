// How often the program has asked for memory: for tests of code that must not.
//
// Replaces operator new, so exactly one source file of a test program includes this.
#ifndef MOEWE_TESTS_COUNTED_ALLOCATIONS_H_
#define MOEWE_TESTS_COUNTED_ALLOCATIONS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace moewe {

// Of all threads.
inline std::atomic<uint64_t> counted_allocations{0};

}  // namespace moewe

// All forms that a delete below may get back: one left to the library would be another allocator's
// under a sanitizer.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++moewe::counted_allocations;
  return std::malloc(bytes);
}
void* operator new(size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t align) {
  ++moewe::counted_allocations;
  const auto unit = static_cast<size_t>(align);
  if (void* memory =
          std::aligned_alloc(unit, (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit)) {
    return memory;
  }
  throw std::bad_alloc();
}
// Where they are inlined, GCC takes std::free for a mismatch of new.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

#endif  // MOEWE_TESTS_COUNTED_ALLOCATIONS_H_
