#include "platform/disk_transfer.h"

#include <algorithm>
#include <cerrno>

namespace moewe {
namespace {

// The system may say "again" for as long as it likes; at some point that is a fault.
constexpr int kMostInterruptions = 1000;

bool IsInterruption(int64_t result) {
  // ECANCELED: io_uring, if the thread that submitted ends before the read does.
  return result == -EINTR || result == -EAGAIN || result == -ECANCELED;
}

}  // namespace

DiskTransfer::DiskTransfer(const DiskRead& read, uint64_t piece)
    : read_(read), piece_(piece), done_(read.bytes == 0) {}

uint64_t DiskTransfer::bytes() const { return std::min(piece_, read_.bytes - begin()); }

void DiskTransfer::Take(int64_t result) {
  if (IsInterruption(result) && ++interruptions_ < kMostInterruptions) return;
  if (result < 0) {
    error_ = static_cast<int>(-result);
    done_ = true;
    return;
  }
  const uint64_t reached = begin() + static_cast<uint64_t>(result);
  if (reached <= got_) {  // the file ends here
    done_ = true;
    return;
  }
  const bool is_short = static_cast<uint64_t>(result) < bytes();
  got_ = reached;
  interruptions_ = 0;
  done_ = got_ == read_.bytes || (is_short && got_ >= read_.needed);
}

}  // namespace moewe
