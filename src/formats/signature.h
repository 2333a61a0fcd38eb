// Detached signatures (CMF v2, section 8.2): "<file>.sig" beside a model file says who vouches for
// its bytes. JSON {alg: "ed25519-sha256", pubkey, sha256, sig} in hexadecimal: Ed25519 over the 32
// bytes of the file's SHA-256. The file itself is never touched, and every file of a shard set has
// a signature of its own.
//
// A signature that checks out says that the holder of `pubkey` signed these bytes; whether that key
// is to be trusted is the reader's to decide, so it is always shown.
#ifndef MOEWE_FORMATS_SIGNATURE_H_
#define MOEWE_FORMATS_SIGNATURE_H_

#include <array>
#include <cstdint>
#include <string>

#include "base/byte_reader.h"
#include "base/function_ref.h"

namespace moewe::formats {

// Called with the bytes of the file digested so far and in total.
using SignatureProgress = FunctionRef<void(uint64_t done, uint64_t total)>;

// The file's signature path, "<path>.sig".
std::string SignaturePath(const std::string& path);

// Checks `path` against SignaturePath(path) and returns the signer's public key, 64 hex digits.
// Throws Error{kNotFound} without a signature file, Error{kParse} naming the field of a malformed
// one, Error{kUnsupported} for another algorithm, Error{kHashMismatch} if the file differs from
// what was signed or the signature is not of that key.
std::string CheckSignature(const std::string& path, SignatureProgress progress);

// SHA-256 of `bytes`, 64 hex digits.
std::string Sha256Hex(Bytes bytes);

// An Ed25519 private key: its 32-byte seed, kept in a file as 64 hex digits.
class SigningKey {
 public:
  // Throws Error{kNotFound, kIo}, Error{kParse} if the file is anything else.
  static SigningKey Read(const std::string& path);

  // A random key in a new file that only its owner may read. Throws Error{kUsage} if the file
  // exists: a key is never overwritten.
  static SigningKey Create(const std::string& path);

  ~SigningKey();
  SigningKey(const SigningKey&) = default;
  SigningKey& operator=(const SigningKey&) = default;

  std::string PublicKey() const;  // 64 hex digits

  // Writes SignaturePath(path), replacing an older one. Throws Error{kNotFound, kIo, kNoSpace}.
  void Sign(const std::string& path, SignatureProgress progress) const;

 private:
  SigningKey() = default;

  std::array<uint8_t, 32> seed_ = {};
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_SIGNATURE_H_
