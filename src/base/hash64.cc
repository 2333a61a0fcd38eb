#include "base/hash64.h"

#include <fmt/format.h>

#include <cstring>

namespace moewe {
namespace {

constexpr uint64_t kSaltStep = 0x9E3779B97F4A7C15u;

uint64_t Fmix64(uint64_t k) {
  k ^= k >> 33;
  k *= 0xFF51AFD7ED558CCDu;
  k ^= k >> 33;
  k *= 0xC4CEB9FE1A85EC53u;
  k ^= k >> 33;
  return k;
}

}  // namespace

void Hash64::AddWord(uint64_t word) {
  fold_ ^= Fmix64(word) ^ salt_;
  salt_ += kSaltStep;
}

void Hash64::Update(Bytes bytes) {
  size_t i = 0;
  for (; length_ % 8 != 0 && i < bytes.size(); ++i, ++length_) {
    pending_ |= uint64_t{bytes[i]} << (8 * (length_ % 8));
    if (length_ % 8 == 7) {
      AddWord(pending_);
      pending_ = 0;
    }
  }
  for (; i + 8 <= bytes.size(); i += 8, length_ += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    AddWord(word);
  }
  for (; i < bytes.size(); ++i, ++length_) {
    pending_ |= uint64_t{bytes[i]} << (8 * (length_ % 8));
  }
}

uint64_t Hash64::Digest() const {
  uint64_t fold = fold_;
  if (length_ % 8 != 0) fold ^= Fmix64(pending_) ^ salt_;
  return Fmix64(fold ^ length_);
}

uint64_t HashBytes(Bytes bytes) {
  Hash64 hash;
  hash.Update(bytes);
  return hash.Digest();
}

std::string HashToHex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace moewe
