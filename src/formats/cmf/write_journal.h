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

// A file of [u64 plan fingerprint] and records of four u64 with a hash64 of the four: a record cut
// off by a crash is noticed. Not thread-safe.
class WriteJournal {
 public:
  // The records of a journal of this plan, up to the first broken one; empty if there is none or it
  // is of another plan.
  static std::vector<JournalRecord> Read(const std::string& path, uint64_t fingerprint);

  // Starts a journal with the records that were found good.
  WriteJournal(const std::string& path, uint64_t fingerprint,
               const std::vector<JournalRecord>& records);

  void Add(const JournalRecord& record);

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_WRITE_JOURNAL_H_
