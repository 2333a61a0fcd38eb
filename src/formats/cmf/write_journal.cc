#include "formats/cmf/write_journal.h"

#include <array>
#include <cstring>
#include <filesystem>

#include "base/hash64.h"

namespace moewe::formats {
namespace {

using Words = std::array<uint64_t, 5>;

Bytes AsBytes(const Words& words, size_t count) {
  return {reinterpret_cast<const uint8_t*>(words.data()), count * sizeof(uint64_t)};
}

Words Pack(const JournalRecord& record) {
  Words words{record.index, record.offset, record.nbytes, record.hash, 0};
  words[4] = HashBytes(AsBytes(words, 4));
  return words;
}

constexpr uint64_t kJournalLimit = uint64_t{1} << 30;

}  // namespace

std::vector<JournalRecord> WriteJournal::Read(const std::string& path, uint64_t fingerprint) {
  std::vector<JournalRecord> records;
  if (!std::filesystem::exists(path)) return records;
  const std::vector<uint8_t> bytes = ReadWholeFile(path, kJournalLimit);
  ByteReader reader(bytes, path);
  if (reader.remaining() < sizeof(uint64_t) || reader.U64("fingerprint") != fingerprint) {
    return records;
  }
  while (reader.remaining() >= sizeof(Words)) {
    const Words words = reader.Read<Words>("record");
    if (words[4] != HashBytes(AsBytes(words, 4))) break;
    records.push_back({words[0], words[1], words[2], words[3]});
  }
  return records;
}

WriteJournal::WriteJournal(const std::string& path, uint64_t fingerprint,
                           const std::vector<JournalRecord>& records)
    : path_(path), file_(FileDescriptor::OpenForWriting(path, /*truncate=*/true)) {
  Words words{fingerprint};
  WriteAll(file_.get(), AsBytes(words, 1), path_);
  for (const JournalRecord& record : records) Add(record);
}

void WriteJournal::Add(const JournalRecord& record) {
  const Words words = Pack(record);
  WriteAll(file_.get(), AsBytes(words, words.size()), path_);
}

}  // namespace moewe::formats
