#include "experts/expert_frequencies.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/byte_reader.h"
#include "base/hash64.h"
#include "moewe/error.h"
#include "platform/atomic_file.h"
#include "platform/file_io.h"

namespace moewe::experts {
namespace {

constexpr std::string_view kMagic = "MOEWFREQ";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kHeadBytes = 24;
constexpr uint64_t kCountBytes = sizeof(uint64_t);

template <typename T>
void Put(std::vector<uint8_t>* bytes, T value) {
  const size_t at = bytes->size();
  bytes->resize(at + sizeof(T));
  std::memcpy(bytes->data() + at, &value, sizeof(T));
}

// Nobody is asked before a model writes here: what somebody else may have put at this place (a link
// to another file, a pipe that never ends) is neither followed nor waited for.
void RequireFileOrNothing(const std::string& path) {
  using std::filesystem::file_type;
  std::error_code unknown;
  const file_type type = std::filesystem::symlink_status(path, unknown).type();
  if (type == file_type::regular || type == file_type::not_found || type == file_type::none) return;
  throw Error(ErrorCode::kIo, "is not a regular file", {path, ""});
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return CheckedAdd(a, b).value_or(UINT64_MAX); }

uint64_t Sum(const std::vector<uint64_t>& counts) {
  uint64_t sum = 0;
  for (const uint64_t count : counts) sum = SaturatingAdd(sum, count);
  return sum;
}

void Halve(std::vector<uint64_t>* counts) {
  for (uint64_t& count : *counts) count /= 2;
}

}  // namespace

std::string FrequencyPath(const std::string& model) {
  std::string path = model;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path + ".freq";
}

uint64_t FrequencyKey(std::span<const ModelFile> files,
                      std::span<const uint32_t> experts_per_layer) {
  std::vector<uint8_t> bytes;
  for (const ModelFile& file : files) {
    bytes.insert(bytes.end(), file.name.begin(), file.name.end());
    bytes.push_back(0);
    Put(&bytes, file.bytes);
  }
  for (const uint32_t experts : experts_per_layer) Put(&bytes, experts);
  return HashBytes(bytes);
}

std::vector<uint64_t> ReadFrequencies(const std::string& path, uint64_t key, size_t experts) {
  const uint64_t size = kHeadBytes + (experts + 1) * kCountBytes;
  RequireFileOrNothing(path);
  const std::vector<uint8_t> bytes = ReadWholeFile(path, size);
  ByteReader reader(bytes, path);
  const Bytes magic = reader.Take(kMagic.size(), "magic");
  if (!std::equal(magic.begin(), magic.end(), kMagic.begin())) {
    throw Error(ErrorCode::kInvalidMagic, "no counts of experts", {path, "magic", 0});
  }
  if (const uint32_t version = reader.U32("version"); version != kVersion) {
    throw Error(ErrorCode::kUnsupportedVersion, fmt::format("version {}", version),
                {path, "version", 8});
  }
  const uint32_t stored = reader.U32("experts");
  const uint64_t stored_key = reader.U64("key");
  if (stored != experts || stored_key != key) {
    throw Error(ErrorCode::kParse, "counts of another model", {path, "key", 16});
  }
  std::vector<uint64_t> counts(experts);
  for (uint64_t& count : counts) count = reader.U64("counts");
  const uint64_t hash = reader.U64("hash");
  if (hash != HashBytes(Bytes(bytes).first(static_cast<size_t>(size - kCountBytes)))) {
    throw Error(ErrorCode::kHashMismatch, "damaged counts of experts",
                {path, "hash", size - kCountBytes});
  }
  return counts;
}

bool SaveFrequencies(const std::string& path, uint64_t key, std::span<const uint64_t> counts) {
  std::vector<uint8_t> bytes(kMagic.begin(), kMagic.end());
  Put(&bytes, kVersion);
  Put(&bytes, static_cast<uint32_t>(counts.size()));
  Put(&bytes, key);
  for (const uint64_t count : counts) Put(&bytes, count);
  Put(&bytes, HashBytes(bytes));
  try {
    RequireFileOrNothing(path);
    AtomicFile file(path);
    file.Write(bytes);
    file.Commit();
  } catch (const Error& error) {
    std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (folder.empty()) folder = ".";
    const bool forbidden = access(folder.c_str(), W_OK) != 0 && errno != ENOENT;
    if (error.code() == ErrorCode::kIo && forbidden) return false;
    throw;
  }
  return true;
}

std::vector<uint64_t> MergeFrequencies(std::span<const uint64_t> past,
                                       std::span<const uint64_t> present) {
  std::vector<uint64_t> sum(past.begin(), past.end());
  std::vector<uint64_t> recent(present.begin(), present.end());
  const uint64_t most = kMostUses * recent.size();
  while (Sum(recent) > most) Halve(&recent);
  while (SaturatingAdd(Sum(sum), Sum(recent)) > most && Sum(sum) > 0) Halve(&sum);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += recent[i];
  return sum;
}

}  // namespace moewe::experts
