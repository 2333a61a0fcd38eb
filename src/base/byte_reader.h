// Little-endian reading from untrusted bytes, with every bound checked.
//
// Every parser of a file goes through ByteReader and the checked arithmetic below: a size that a
// file states is never added, multiplied or used as an index before it was checked. A read past the
// end throws Error{kBounds} with the file, the field and the absolute offset.
#ifndef MOEWE_BASE_BYTE_READER_H_
#define MOEWE_BASE_BYTE_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "moewe/error.h"

namespace moewe {

using Bytes = std::span<const uint8_t>;

// a + b and a * b, or nothing where the result does not fit 64 bits.
inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Reads from `bytes`, which start at absolute offset `base` of `file` (for messages). Not
// thread-safe; the bytes must outlive the reader. Does not allocate except for error messages.
class ByteReader {
 public:
  ByteReader(Bytes bytes, std::string file, uint64_t base = 0)
      : bytes_(bytes), file_(std::move(file)), base_(base) {}

  size_t position() const { return pos_; }
  size_t remaining() const { return bytes_.size() - pos_; }
  uint64_t absolute_offset() const { return base_ + pos_; }

  // Moves to `position` bytes from the start; the end itself is allowed.
  void Seek(uint64_t position, std::string_view field) {
    if (position > bytes_.size()) Fail(field, "points past the end");
    pos_ = static_cast<size_t>(position);
  }

  // The next n bytes, without copying.
  Bytes Take(uint64_t n, std::string_view field) {
    if (n > remaining()) Fail(field, "runs past the end");
    Bytes taken = bytes_.subspan(pos_, static_cast<size_t>(n));
    pos_ += static_cast<size_t>(n);
    return taken;
  }

  template <typename T>
  T Read(std::string_view field) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, Take(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  uint8_t U8(std::string_view field) { return Read<uint8_t>(field); }
  uint16_t U16(std::string_view field) { return Read<uint16_t>(field); }
  uint32_t U32(std::string_view field) { return Read<uint32_t>(field); }
  uint64_t U64(std::string_view field) { return Read<uint64_t>(field); }

 private:
  [[noreturn]] void Fail(std::string_view field, std::string_view problem) const {
    throw Error(ErrorCode::kBounds, std::string(field) + " " + std::string(problem),
                {file_, std::string(field), absolute_offset()});
  }

  Bytes bytes_;
  std::string file_;
  uint64_t base_;
  size_t pos_ = 0;
};

}  // namespace moewe

#endif  // MOEWE_BASE_BYTE_READER_H_
