// What a partial CMF file already holds, so that an interrupted conversion can go on.
#ifndef MOEWE_FORMATS_CMF_WRITE_JOURNAL_H_
#define MOEWE_FORMATS_CMF_WRITE_JOURNAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "platform/file_io.h"

namespace moewe::formats {

// One finished tensor.
struct JournalRecord {
  uint64_t index = 0;
  uint64_t offset = 0;  // relative to the data section
  uint64_t nbytes = 0;
  uint64_t hash = 0;
};

// What decides which bytes go where: a journal is only good for the same of both.
struct JournalIdentity {
  uint64_t source = 0;
  uint64_t plan = 0;
  bool operator==(const JournalIdentity&) const = default;
};

struct JournalContents {
  enum class State : uint8_t { kNone, kDamaged, kOtherSource, kOtherPlan, kGood };
  State state = State::kNone;
  // Up to the first broken one, which makes the state kDamaged.
  std::vector<JournalRecord> records;
};

// A file of a head (source, plan, a hash64 of the two) and records of four u64 with a hash64 of the
// four: what a crash or a fault changed is noticed. Not thread-safe.
class WriteJournal {
 public:
  static JournalContents Read(const std::string& path, const JournalIdentity& identity);

  // Whether a file of this name is a journal, of whatever run, or is at most the beginning of one.
  // False if there is none.
  static bool IsJournal(const std::string& path);

  // Starts a journal with the records that were found good. Throws Error{kIo} for a path that is a
  // symbolic link.
  WriteJournal(const std::string& path, const JournalIdentity& identity,
               const std::vector<JournalRecord>& records);

  void Add(const JournalRecord& record);

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_WRITE_JOURNAL_H_
