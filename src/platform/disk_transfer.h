// One read on its way: what to ask the system for next, and when it is over.
#ifndef MOEWE_PLATFORM_DISK_TRANSFER_H_
#define MOEWE_PLATFORM_DISK_TRANSFER_H_

#include <cstdint>

#include "platform/disk_reader.h"

namespace moewe {

// Whoever moves the bytes asks for offset(), into(), bytes() and tells Take what came of it, until
// done(). One thread at a time.
class DiskTransfer {
 public:
  DiskTransfer() = default;
  // Asks for at most `piece` bytes at a time, a multiple of kDiskAlignment.
  DiskTransfer(const DiskRead& read, uint64_t piece);

  bool done() const { return done_; }
  uint32_t file() const { return read_.file; }
  uint64_t offset() const { return read_.offset + begin(); }
  uint8_t* into() const { return read_.into + begin(); }
  uint64_t bytes() const;

  // `result`: bytes that came, 0 at the end of the file, or -errno. Interruptions and short results
  // lead to another request unless what is needed has come.
  void Take(int64_t result);

  DiskResult result() const { return {read_.tag, error_, got_}; }

 private:
  // After a short result the last page is asked for again: direct reads begin at a multiple of it.
  uint64_t begin() const { return got_ / kDiskAlignment * kDiskAlignment; }

  DiskRead read_;
  uint64_t piece_ = 0;
  uint64_t got_ = 0;
  int interruptions_ = 0;  // without progress
  int error_ = 0;
  bool done_ = true;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_DISK_TRANSFER_H_
