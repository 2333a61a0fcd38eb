#include "formats/cmf/write_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/hash64.h"

namespace moewe::formats {
namespace {

using Head = std::array<uint64_t, 3>;
using Words = std::array<uint64_t, 5>;

template <size_t kCount>
Bytes AsBytes(const std::array<uint64_t, kCount>& words, size_t count = kCount) {
  return {reinterpret_cast<const uint8_t*>(words.data()), count * sizeof(uint64_t)};
}

// Gives the last word its value: a hash of those before it.
template <size_t kCount>
std::array<uint64_t, kCount> Sealed(std::array<uint64_t, kCount> words) {
  words.back() = HashBytes(AsBytes(words, kCount - 1));
  return words;
}

constexpr uint64_t kJournalLimit = uint64_t{1} << 30;

bool Exists(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0;
}

FileDescriptor OpenTruncated(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) ThrowErrno("cannot create", path);
  return FileDescriptor(fd);
}

}  // namespace

JournalContents WriteJournal::Read(const std::string& path, const JournalIdentity& identity) {
  using State = JournalContents::State;
  JournalContents contents;
  if (!Exists(path)) return contents;
  const std::vector<uint8_t> bytes = ReadWholeFile(path, kJournalLimit);
  ByteReader reader(bytes, path);
  contents.state = State::kDamaged;
  if (reader.remaining() < sizeof(Head)) return contents;
  const Head head = reader.Read<Head>("head");
  if (head != Sealed(head)) return contents;
  if (head[0] != identity.source || head[1] != identity.plan) {
    contents.state = head[0] != identity.source ? State::kOtherSource : State::kOtherPlan;
    return contents;
  }
  while (reader.remaining() >= sizeof(Words)) {
    const Words words = reader.Read<Words>("record");
    if (words != Sealed(words)) return contents;
    contents.records.push_back({words[0], words[1], words[2], words[3]});
  }
  if (reader.remaining() == 0) contents.state = State::kGood;
  return contents;
}

bool WriteJournal::IsJournal(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (status.st_size < static_cast<off_t>(sizeof(Head))) return true;
  const FileDescriptor file = FileDescriptor::OpenForReading(path);
  Head head = {};
  return pread(file.get(), head.data(), sizeof(head), 0) == static_cast<ssize_t>(sizeof(head)) &&
         head == Sealed(head);
}

WriteJournal::WriteJournal(const std::string& path, const JournalIdentity& identity,
                           const std::vector<JournalRecord>& records)
    : path_(path), file_(OpenTruncated(path)) {
  WriteAll(file_.get(), AsBytes(Sealed(Head{identity.source, identity.plan, 0})), path_);
  for (const JournalRecord& record : records) Add(record);
}

void WriteJournal::Add(const JournalRecord& record) {
  const Words words{record.index, record.offset, record.nbytes, record.hash, 0};
  WriteAll(file_.get(), AsBytes(Sealed(words)), path_);
}

}  // namespace moewe::formats
