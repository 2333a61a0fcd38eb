// hash64 of CMF v2 section 8: the non-cryptographic 64-bit hash of tensors and sections.
//
//   h = fmix64( len ^ XOR over i of ( fmix64(word_i) ^ i * 0x9E3779B97F4A7C15 ) )
//
// over little-endian 64-bit words, the last one padded with zeros; fmix64 is murmur3's finalizer.
// It detects corruption, not tampering.
#ifndef MOEWE_BASE_HASH64_H_
#define MOEWE_BASE_HASH64_H_

#include <cstdint>
#include <string>

#include "base/byte_reader.h"

namespace moewe {

// Hashes bytes that arrive in pieces of any size. Not thread-safe.
class Hash64 {
 public:
  void Update(Bytes bytes);
  uint64_t Digest() const;  // of everything so far; more may follow

 private:
  void AddWord(uint64_t word);

  uint64_t fold_ = 0;
  uint64_t salt_ = 0;     // index of the next word times the golden-ratio constant
  uint64_t length_ = 0;   // bytes so far
  uint64_t pending_ = 0;  // the length_ % 8 bytes of the unfinished word
};

uint64_t HashBytes(Bytes bytes);

// 16 lower-case hex digits, as headers and reports write a hash.
std::string HashToHex(uint64_t hash);

}  // namespace moewe

#endif  // MOEWE_BASE_HASH64_H_
