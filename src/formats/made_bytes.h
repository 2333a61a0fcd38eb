// Bytes of a tensor that no file holds as they are needed: made from others, such as a transposed
// or packed matrix, while somebody uses them.
#ifndef MOEWE_FORMATS_MADE_BYTES_H_
#define MOEWE_FORMATS_MADE_BYTES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "formats/checkpoint.h"
#include "platform/reserved_memory.h"

namespace moewe::formats {

// Takes memory while it is held. Any thread.
class MadeBytes {
 public:
  // Fills zeros; may throw Error. What it reads must live as long as it.
  using Make = std::function<void(std::span<uint8_t> out)>;

  MadeBytes(size_t size, Make make) : memory_(size), make_(std::move(make)) {}

  // Its place, which may be looked at while it is held.
  Bytes bytes() const { return memory_.memory(); }

  // The first of those who hold it makes it. Throws what Make throws, and Error{kOutOfBudget}.
  void Hold();
  void Release();

 private:
  ReservedMemory memory_;
  Make make_;
  std::mutex mutex_;
  uint64_t holders_ = 0;
};

// Whoever reads `tensor.bytes` has one of these while he does; of bytes that lie in a file it asks
// nothing. Throws as MadeBytes::Hold.
class HeldBytes {
 public:
  explicit HeldBytes(const TensorView& tensor) : made_(tensor.made) {
    if (made_ != nullptr) made_->Hold();
  }
  ~HeldBytes() {
    if (made_ != nullptr) made_->Release();
  }
  HeldBytes(HeldBytes&& other) noexcept : made_(std::exchange(other.made_, nullptr)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(made_, other.made_);
    return *this;
  }

 private:
  std::shared_ptr<MadeBytes> made_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_MADE_BYTES_H_
