// A CMF file that grows in place (section 9): new tensors behind its end, then header and directory
// anew, then the envelope that points to them.
//
//   auto appender = CmfAppender::Open(path, waiting);
//   appender->Add("skill.sql.model.norm.weight", DType::kF16, {64}, bytes);
//   appender->Commit(header);
//
// No byte of the old file changes but the 128 of the envelope, which are written last, at once and
// within one sector of the disk, after everything that they point to is synced: whatever ends the
// process, the file is the old one or the new one. What an interrupted run leaves behind the end
// belongs to nothing; it is skipped by the next one and goes with `compact`, like the space of
// headers and tensors that were replaced.
#ifndef MOEWE_FORMATS_CMF_APPEND_H_
#define MOEWE_FORMATS_CMF_APPEND_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/function_ref.h"
#include "base/json.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/directory.h"
#include "platform/file_lock.h"

namespace moewe::formats {

// A CMF file that nobody else changes at the same time. Of a set of shards the first, which has
// header, masks and skills of the whole; `file` is the set.
struct LockedCmf {
  std::unique_ptr<FileLock> lock;
  std::unique_ptr<CmfFile> file;  // opened under the lock
};

// `waiting` is called, with the file's name, before waiting for another process. Throws what
// CmfFile::Open and FileLock throw.
LockedCmf OpenToChange(const std::string& path, FileLock::Access access,
                       FunctionRef<void(const std::string& file)> waiting);

// Not thread-safe. Readers of the file are not disturbed.
class CmfAppender {
 public:
  static std::unique_ptr<CmfAppender> Open(const std::string& path,
                                           FunctionRef<void(const std::string& file)> waiting);

  // Without Commit the file gets its old length back.
  ~CmfAppender();
  CmfAppender(const CmfAppender&) = delete;
  CmfAppender& operator=(const CmfAppender&) = delete;

  // As it was when it was opened.
  const CmfFile& file() const { return *locked_.file; }
  const std::string& path() const { return locked_.lock->path(); }

  // Writes one more tensor; nothing refers to it before Commit. Throws Error{kUsage} for a name
  // that is taken or that a directory can't hold, Error{kNoSpace, kIo}.
  void Add(const std::string& name, DType dtype, const std::vector<uint64_t>& shape, Bytes bytes);

  // Leaves a tensor out of the new directory. Throws Error{kUnknownName}.
  void Remove(const std::string& name);

  // What Add wrote: offsets relative to the data section.
  const std::vector<cmf::DirectoryRecord>& added() const { return added_; }

  // Writes `header` (its section_hashes are renewed from the sections' own) and the new directory,
  // syncs, and replaces the envelope. Throws Error{kIo, kNoSpace}: the file is the old one then,
  // unless the very last sync failed, when it may be either. kIo also if the file was replaced by
  // another since it was opened.
  void Commit(const Json& header);

 private:
  explicit CmfAppender(LockedCmf locked);

  uint64_t data_offset() const;
  void CutTail();

  void ReplaceEnvelope(const cmf::Envelope& envelope);

  LockedCmf locked_;
  std::array<uint8_t, cmf::kEnvelopeSize> old_envelope_;
  uint64_t old_size_ = 0;
  uint64_t end_ = 0;  // of the file, with what was added
  std::vector<cmf::DirectoryRecord> added_;
  std::unordered_set<std::string> names_;    // of added_
  std::unordered_set<std::string> removed_;  // of the old directory
  bool keep_tail_ = false;                   // an envelope may point there
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_APPEND_H_
