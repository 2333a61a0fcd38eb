// Reads of many pieces of files at a time, past the page cache where the file system can.
//
// Two ways behind one interface: io_uring, and a few threads that call pread. Files are read with
// O_DIRECT if a real transfer with it succeeds; else through the page cache, whose pages are given
// back behind the read, so that a memory budget stays what it is either way.
#ifndef MOEWE_PLATFORM_DISK_READER_H_
#define MOEWE_PLATFORM_DISK_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/file_io.h"

namespace moewe {

// Offsets, sizes and addresses of reads are multiples of this.
inline constexpr uint64_t kDiskAlignment = 4096;

struct DiskRead {
  uint32_t file = 0;    // index into the files that the reader was opened with
  uint64_t offset = 0;  // multiples of kDiskAlignment, all three
  uint64_t bytes = 0;   // may reach beyond the end of the file ...
  uint8_t* into = nullptr;
  uint64_t needed = 0;  // ... but this many bytes must come, else the read has failed
  uint64_t tag = 0;     // comes back with the result
};

struct DiskResult {
  uint64_t tag = 0;
  int error = 0;       // errno; 0 = needed bytes are there
  uint64_t bytes = 0;  // that came; with error 0 and bytes < needed the file has ended before
  bool ok(uint64_t needed) const { return error == 0 && bytes >= needed; }
};

enum class DiskUrgency : uint8_t {
  kDemand,    // somebody waits
  kPrefetch,  // starts only while no demand read is queued
};

struct DiskInfo {
  std::string method;    // "io_uring", "pread"
  bool direct = false;   // O_DIRECT, in all files
  std::string fallback;  // what of the above is second choice, and why; empty if nothing is
  // Reads in flight at most, or pieces of large direct ones (kDiskPiece in disk_methods.h).
  uint32_t depth = 0;
};

// One caller at a time, who both submits and reaps. Buffers must stay until their read was reaped
// or the reader is gone. With io_uring, queued reads start in calls of Submit and Reap only: who
// computes meanwhile calls Reap now and then.
class DiskReader {
 public:
  virtual ~DiskReader() = default;  // waits for what is in flight; what is queued never starts

  // Never blocks on the disk: what exceeds the depth is queued.
  virtual void Submit(std::span<const DiskRead> reads, DiskUrgency urgency) = 0;

  // Appends the results of finished reads, in any order. `wait`: for at least one, if any is
  // pending.
  virtual void Reap(bool wait, std::vector<DiskResult>* results) = 0;

  // Takes back prefetches that have not started; their tags are appended, and never reaped. What
  // has started ends as usual.
  virtual void CancelQueued(std::vector<uint64_t>* tags) = 0;

  // A queued prefetch that somebody waits for now. No effect on one that has started.
  virtual void Promote(uint64_t tag) = 0;

  virtual size_t pending() const = 0;  // submitted, not reaped
  virtual const DiskInfo& info() const = 0;
};

struct DiskOptions {
  enum class Method : uint8_t { kAuto, kUring, kPread } method = Method::kAuto;
  bool direct = true;  // false: through the page cache, given back behind
  // 0 = what was found for the device (ProbeDisk): now, in 0.3 s, if it is not remembered and the
  // files are so large that it matters.
  uint32_t depth = 0;
  // Memory that reads will go to, to be registered with the kernel where that is allowed: its pages
  // must stay the same as long as the reader lives (no MADV_DONTNEED, no new mapping). Empty =
  // unknown.
  std::span<uint8_t> memory = {};
};

// Opens `files` for reading. Throws Error{kNotFound, kIo}.
std::unique_ptr<DiskReader> OpenDiskReader(std::span<const std::string> files,
                                           const DiskOptions& options);

// What a device gives for reads of about `bytes` each.
struct DiskSpeed {
  double bytes_per_s = 0.0;
  std::string method;
  uint32_t depth = 0;
  bool direct = false;
};

// Measures it with random reads from `file` (larger is better; a small one is read over and over)
// for about `seconds`, trying both methods and a few depths in turn; takes the least depth within a
// few percent of the best. Remembers the method and depth of the device in a small file of the
// user's cache folder and starts from there next time: the speed itself is always measured. Throws
// Error{kNotFound, kIo}.
DiskSpeed ProbeDisk(const std::string& file, uint64_t bytes, double seconds);

// Gives back the page cache's pages of a file; nothing happens where that is not possible.
void DropFromPageCache(const std::string& file);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_READER_H_
