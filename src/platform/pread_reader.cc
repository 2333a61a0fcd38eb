// Disk reads by a few threads that call pread.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "platform/disk_methods.h"
#include "platform/disk_queue.h"
#include "platform/disk_transfer.h"
#include "platform/signals_elsewhere.h"

namespace moewe {
namespace {

class PreadReader : public DiskReader {
 public:
  PreadReader(DiskFiles files, uint32_t depth) : files_(std::move(files.files)) {
    info_ = {"pread", files.direct, std::move(files.fallback), 0};
    threads_.reserve(depth);
    try {
      const SignalsElsewhere signals;
      while (threads_.size() < depth) threads_.emplace_back([this] { Work(); });
    } catch (const std::exception& error) {  // of the system's, or no memory for it
      if (threads_.empty()) {
        throw Error(ErrorCode::kOutOfBudget,
                    std::string("cannot start a thread that reads: ") + error.what());
      }
    }
    info_.depth = static_cast<uint32_t>(threads_.size());
  }

  ~PreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      queue_.Clear();
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Submit(std::span<const DiskRead> reads, DiskUrgency urgency) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.Push(reads, urgency);
    }
    pending_ += reads.size();
    if (reads.size() == 1) {
      work_.notify_one();
    } else {
      work_.notify_all();
    }
  }

  void Reap(bool wait, std::vector<DiskResult>* results) override {
    std::unique_lock lock(mutex_);
    if (wait && pending_ != 0) finished_.wait(lock, [this] { return !results_.empty(); });
    results->insert(results->end(), results_.begin(), results_.end());
    pending_ -= results_.size();
    results_.clear();
  }

  void CancelQueued(std::vector<uint64_t>* tags) override {
    const std::lock_guard lock(mutex_);
    pending_ -= queue_.CancelPrefetches(tags);
  }

  void Promote(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    queue_.Promote(tag);
  }

  size_t pending() const override { return pending_; }
  const DiskInfo& info() const override { return info_; }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      const DiskRead read = queue_.Pop();
      lock.unlock();
      const DiskResult result = ReadAll(read);
      lock.lock();
      results_.push_back(result);
      finished_.notify_one();
    }
  }

  DiskResult ReadAll(const DiskRead& read) const {
    if (read.file >= files_.size()) return {read.tag, EBADF, 0};
    const DiskFile& file = files_[read.file];
    DiskTransfer transfer(read, file.piece());
    while (!transfer.done()) {
      const uint64_t offset = transfer.offset();
      const ssize_t came = pread(file.descriptor.get(), transfer.into(), transfer.bytes(),
                                 static_cast<off_t>(offset));
      if (came > 0) file.DropBehind(offset, static_cast<uint64_t>(came));
      transfer.Take(came < 0 ? -errno : came);
    }
    return transfer.result();
  }

  const std::vector<DiskFile> files_;
  DiskInfo info_;
  size_t pending_ = 0;  // the caller's, like info_

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::condition_variable finished_;
  DiskQueue queue_;
  std::vector<DiskResult> results_;
  bool stop_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskReader> MakePreadReader(DiskFiles files, uint32_t depth) {
  return std::make_unique<PreadReader>(std::move(files), depth);
}

}  // namespace moewe
