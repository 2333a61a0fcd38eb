#include "formats/signature.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes_of.h"
#include "base/json.h"
#include "moewe/error.h"
#include "platform/atomic_file.h"
#include "platform/file_io.h"
#include "platform/mapped_file.h"

namespace moewe::formats {
namespace {

constexpr std::string_view kAlgorithm = "ed25519-sha256";
constexpr uint64_t kLargestSignatureFile = 64 * 1024;
constexpr size_t kDigestStep = size_t{16} << 20;

using Digest = std::array<uint8_t, 32>;
using PublicKeyBytes = std::array<uint8_t, 32>;
using SignatureBytes = std::array<uint8_t, 64>;

struct Deleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using KeyHandle = std::unique_ptr<EVP_PKEY, Deleter>;
using ContextHandle = std::unique_ptr<EVP_MD_CTX, Deleter>;

// For what only fails when memory or the library itself does.
void Require(bool succeeded) {
  if (!succeeded) throw Error(ErrorCode::kInternal, "the cryptographic library failed");
}

ContextHandle NewContext() {
  ContextHandle context(EVP_MD_CTX_new());
  Require(context != nullptr);
  return context;
}

std::string ToHex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Exactly 2 * out.size() hex digits.
bool FromHex(std::string_view text, std::span<uint8_t> out) {
  if (text.size() != out.size() * 2) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

Digest Sha256(Bytes bytes, SignatureProgress progress) {
  const ContextHandle context = NewContext();
  Require(EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  for (size_t done = 0; done < bytes.size();) {
    const size_t step = std::min(kDigestStep, bytes.size() - done);
    Require(EVP_DigestUpdate(context.get(), bytes.data() + done, step) == 1);
    done += step;
    progress(done, bytes.size());
  }
  Digest digest;
  Require(EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1);
  return digest;
}

Digest Sha256(const std::string& path, SignatureProgress progress) {
  const std::unique_ptr<MappedFile> file = MappedFile::Open(path);
  const Digest digest = Sha256(file->bytes(), progress);
  file->Check();
  return digest;
}

template <size_t N>
std::array<uint8_t, N> HexField(const Json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) {
    throw Error(ErrorCode::kParse, "the signature has no such string", {path, key});
  }
  std::array<uint8_t, N> bytes;
  if (!FromHex(found->get_ref<const std::string&>(), bytes)) {
    throw Error(ErrorCode::kParse, "expected " + std::to_string(2 * N) + " hex digits",
                {path, key});
  }
  return bytes;
}

KeyHandle PrivateKey(const std::array<uint8_t, 32>& seed) {
  KeyHandle key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  Require(key != nullptr);
  return key;
}

}  // namespace

std::string Sha256Hex(Bytes bytes) {
  return ToHex(Sha256(bytes, [](uint64_t, uint64_t) {}));
}

std::string SignaturePath(const std::string& path) { return path + ".sig"; }

std::string CheckSignature(const std::string& path, SignatureProgress progress) {
  const std::string sig_path = SignaturePath(path);
  const std::vector<uint8_t> text = ReadWholeFile(sig_path, kLargestSignatureFile);
  const Json json = ParseJson(text, sig_path, "");
  if (!json.is_object()) {
    throw Error(ErrorCode::kParse, "a signature is a JSON object", {sig_path, ""});
  }
  const auto alg = json.find("alg");
  if (alg == json.end() || !alg->is_string()) {
    throw Error(ErrorCode::kParse, "the signature has no such string", {sig_path, "alg"});
  }
  if (alg->get_ref<const std::string&>() != kAlgorithm) {
    throw Error(ErrorCode::kUnsupported,
                "algorithm '" + alg->get<std::string>() + "' is not " + std::string(kAlgorithm),
                {sig_path, "alg"});
  }
  const auto public_key = HexField<32>(json, "pubkey", sig_path);
  const auto signed_digest = HexField<32>(json, "sha256", sig_path);
  const auto signature = HexField<64>(json, "sig", sig_path);

  // The signature first: it costs nothing, and reading a large file for a broken one does.
  const KeyHandle key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, public_key.data(), public_key.size()));
  const ContextHandle context = NewContext();
  const bool valid =
      key != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestVerify(context.get(), signature.data(), signature.size(), signed_digest.data(),
                       signed_digest.size()) == 1;
  if (!valid) {
    throw Error(ErrorCode::kHashMismatch, "the signature is not that of this key and digest",
                {sig_path, "sig"});
  }
  if (Sha256(path, progress) != signed_digest) {
    throw Error(ErrorCode::kHashMismatch, "the file differs from the bytes that were signed",
                {path, ""});
  }
  return ToHex(public_key);
}

SigningKey::~SigningKey() { OPENSSL_cleanse(seed_.data(), seed_.size()); }

SigningKey SigningKey::Read(const std::string& path) {
  std::vector<uint8_t> bytes = ReadWholeFile(path, kLargestSignatureFile);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  SigningKey key;
  const bool valid = FromHex(text, key.seed_);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  if (!valid) {
    throw Error(ErrorCode::kParse, "a signing key is a file of 64 hex digits", {path, ""});
  }
  return key;
}

SigningKey SigningKey::Create(const std::string& path) {
  SigningKey key;
  Require(RAND_priv_bytes(key.seed_.data(), static_cast<int>(key.seed_.size())) == 1);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0 && errno == EEXIST) {
    throw Error(ErrorCode::kUsage, "exists already; a new key never replaces a file", {path, ""});
  }
  if (fd < 0) ThrowErrno("cannot create", path);
  const FileDescriptor file(fd);
  std::string text = ToHex(key.seed_) + "\n";
  try {
    WriteAll(fd, BytesOf(text), path);
    SyncFile(fd, path);
  } catch (...) {
    unlink(path.c_str());
    throw;
  }
  OPENSSL_cleanse(text.data(), text.size());
  return key;
}

std::string SigningKey::PublicKey() const {
  PublicKeyBytes bytes;
  size_t length = bytes.size();
  Require(EVP_PKEY_get_raw_public_key(PrivateKey(seed_).get(), bytes.data(), &length) == 1);
  return ToHex(bytes);
}

void SigningKey::Sign(const std::string& path, SignatureProgress progress) const {
  const Digest digest = Sha256(path, progress);
  SignatureBytes signature;
  size_t length = signature.size();
  const KeyHandle key = PrivateKey(seed_);
  const ContextHandle context = NewContext();
  Require(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1);
  Require(EVP_DigestSign(context.get(), signature.data(), &length, digest.data(), digest.size()) ==
          1);
  const Json json = {{"alg", kAlgorithm},
                     {"pubkey", PublicKey()},
                     {"sha256", ToHex(digest)},
                     {"sig", ToHex(signature)}};
  AtomicFile file(SignaturePath(path));
  file.Write(json.dump(2));
  file.Commit();
}

}  // namespace moewe::formats
