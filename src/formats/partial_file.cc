#include "formats/partial_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "formats/cmf/write_journal.h"
#include "moewe/error.h"

namespace moewe::formats {

PartialFile OpenPartial(const std::string& dst, const std::string& target,
                        const std::string& partial, const std::string& journal) {
  struct stat status = {};
  if (stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kUsage,
                S_ISDIR(status.st_mode) ? "is a folder" : "is there and no regular file",
                {dst, ""});
  }
  const bool fresh = lstat(partial.c_str(), &status) != 0;
  std::optional<FileDescriptor> file = OpenLocked(partial);
  if (!file) {
    throw Error(ErrorCode::kIo, "another process is writing this file at the moment", {dst, ""});
  }
  PartialFile result;
  result.file = std::move(*file);
  if (fstat(result.file.get(), &status) != 0) ThrowErrno("cannot read", partial);
  // An empty one is no more than the lock of a run that was refused, or that died at once.
  const bool empty = status.st_size == 0;
  std::string foreign;
  if (!S_ISREG(status.st_mode) || (!empty && !WriteJournal::IsJournal(journal))) {
    foreign = partial;
  } else if (lstat(journal.c_str(), &status) == 0 && !WriteJournal::IsJournal(journal)) {
    foreign = journal;
  }
  if (!foreign.empty()) {
    if (fresh) unlink(partial.c_str());
    throw Error(ErrorCode::kUsage,
                "is in the way and not of an interrupted run: move it, or choose another DST",
                {foreign, ""});
  }
  result.resumable = !fresh && !empty;
  return result;
}

}  // namespace moewe::formats
