// A disk for tests: seeded delays, results out of order, errors and short files on demand.
//
// The FakeDisk holds contents and faults; its readers, which code under test may own, work on it
// from a thread each, so that a thread sanitizer sees what it would with real ones.
//
//   const auto disk = std::make_shared<FakeDisk>();
//   disk->AddFile(bytes);
//   disk->FailReads(/*file=*/0, /*offset=*/4096, /*times=*/1, EIO);
//   std::unique_ptr<DiskReader> reader = disk->MakeReader({.seed = 7, .depth = 4});
#ifndef MOEWE_TESTS_FAKE_DISK_H_
#define MOEWE_TESTS_FAKE_DISK_H_

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "platform/disk_queue.h"
#include "platform/disk_reader.h"
#include "platform/file_io.h"

namespace moewe {

struct FakeDiskOptions {
  uint64_t seed = 1;
  uint32_t depth = 4;
  // Each read takes a random time between them, side by side with the others in flight. With both
  // 0, reads end at once, in a random order.
  std::chrono::microseconds least{0};
  std::chrono::microseconds most{0};
};

// Shared by the test and the readers. Any thread.
class FakeDisk : public std::enable_shared_from_this<FakeDisk> {
 public:
  // Returns the file's index.
  uint32_t AddFile(std::vector<uint8_t> content) {
    const std::lock_guard lock(mutex_);
    files_.push_back(std::move(content));
    return static_cast<uint32_t>(files_.size() - 1);
  }
  // A copy of a real file, as it is now.
  uint32_t AddFile(const std::string& path) { return AddFile(ReadWholeFile(path, UINT64_MAX)); }

  // The file becomes shorter, or longer by zeros.
  void Resize(uint32_t file, uint64_t size) {
    const std::lock_guard lock(mutex_);
    files_[file].resize(size);
  }
  void Overwrite(uint32_t file, uint64_t offset, const std::vector<uint8_t>& bytes) {
    const std::lock_guard lock(mutex_);
    std::copy(bytes.begin(), bytes.end(), files_[file].begin() + static_cast<int64_t>(offset));
  }

  // The next `times` reads that cover this byte fail with `error`; -1 = all of them.
  void FailReads(uint32_t file, uint64_t offset, int times, int error = EIO) {
    const std::lock_guard lock(mutex_);
    faults_.push_back({file, offset, times, error});
  }
  void ClearFaults() {
    const std::lock_guard lock(mutex_);
    faults_.clear();
  }

  // While stopped, reads start but do not end. A reader's end lets its own go.
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  void Go() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = false;
    }
    changed_.notify_all();
  }

  // Reads that have started, in order, of all readers.
  std::vector<DiskRead> started() const {
    const std::lock_guard lock(mutex_);
    return started_;
  }
  // Waits until so many have started. For stopped disks, whose depth bounds what starts.
  void WaitForStarted(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_.size() >= count; });
  }
  // Bytes that came in all reads so far.
  uint64_t bytes_read() const {
    const std::lock_guard lock(mutex_);
    return bytes_read_;
  }

  std::unique_ptr<DiskReader> MakeReader(const FakeDiskOptions& options = {}) {
    return std::make_unique<Reader>(shared_from_this(), options);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Fault {
    uint32_t file = 0;
    uint64_t offset = 0;
    int times = 0;
    int error = 0;
  };

  class Reader : public DiskReader {
   public:
    Reader(std::shared_ptr<FakeDisk> disk, const FakeDiskOptions& options)
        : disk_(std::move(disk)), options_(options), random_(options.seed) {
      info_ = {"fake", true, "", options.depth};
      thread_ = std::thread([this] { Work(); });
    }
    ~Reader() override {
      {
        const std::lock_guard lock(disk_->mutex_);
        queue_.Clear();
        ending_ = true;
      }
      disk_->changed_.notify_all();
      thread_.join();
    }

    void Submit(std::span<const DiskRead> reads, DiskUrgency urgency) override {
      {
        const std::lock_guard lock(disk_->mutex_);
        queue_.Push(reads, urgency);
      }
      pending_ += reads.size();
      disk_->changed_.notify_all();
    }
    void Reap(bool wait, std::vector<DiskResult>* results) override {
      std::unique_lock lock(disk_->mutex_);
      if (wait && pending_ != 0) {
        disk_->changed_.wait(lock, [this] { return !results_.empty(); });
      }
      results->insert(results->end(), results_.begin(), results_.end());
      pending_ -= results_.size();
      results_.clear();
    }
    void CancelQueued(std::vector<uint64_t>* tags) override {
      const std::lock_guard lock(disk_->mutex_);
      pending_ -= queue_.CancelPrefetches(tags);
    }
    void Promote(uint64_t tag) override {
      const std::lock_guard lock(disk_->mutex_);
      queue_.Promote(tag);
    }
    size_t pending() const override { return pending_; }
    const DiskInfo& info() const override { return info_; }

   private:
    struct InFlight {
      DiskRead read;
      Clock::time_point due;
    };

    void Work() {
      std::unique_lock lock(disk_->mutex_);
      for (;;) {
        StartReads();
        if (in_flight_.empty() && ending_) return;
        if (in_flight_.empty() || (disk_->stopped_ && !ending_)) {
          disk_->changed_.wait(lock);
          continue;
        }
        const auto first =
            std::min_element(in_flight_.begin(), in_flight_.end(),
                             [](const InFlight& a, const InFlight& b) { return a.due < b.due; });
        if (first->due > Clock::now()) {
          disk_->changed_.wait_until(lock, first->due);
          continue;
        }
        results_.push_back(disk_->Read(first->read));
        in_flight_.erase(first);
        disk_->changed_.notify_all();
      }
    }

    void StartReads() {
      while (in_flight_.size() < options_.depth && !queue_.empty()) {
        const DiskRead read = queue_.Pop();
        // Without delays the times still order the reads: a random one lies in the past.
        const auto span = options_.most - options_.least;
        const auto delay = options_.most.count() == 0
                               ? -std::chrono::microseconds(random_() % 1000)
                               : options_.least + std::chrono::microseconds(
                                                      random_() % (uint64_t(span.count()) + 1));
        in_flight_.push_back({read, Clock::now() + delay});
        disk_->started_.push_back(read);
        disk_->changed_.notify_all();
      }
    }

    const std::shared_ptr<FakeDisk> disk_;
    const FakeDiskOptions options_;
    DiskInfo info_;
    size_t pending_ = 0;  // the caller's

    // Guarded by the disk's mutex.
    DiskQueue queue_;
    std::vector<InFlight> in_flight_;
    std::vector<DiskResult> results_;
    std::mt19937_64 random_;
    bool ending_ = false;

    std::thread thread_;
  };

  // Under the mutex.
  DiskResult Read(const DiskRead& read) {
    if (read.file >= files_.size()) return {read.tag, EBADF, 0};
    if (read.offset % kDiskAlignment != 0 || read.bytes % kDiskAlignment != 0 ||
        reinterpret_cast<uintptr_t>(read.into) % kDiskAlignment != 0) {
      return {read.tag, EINVAL, 0};
    }
    for (Fault& fault : faults_) {
      if (fault.file != read.file || fault.times == 0 || fault.offset < read.offset ||
          fault.offset - read.offset >= read.bytes) {
        continue;
      }
      if (fault.times > 0) --fault.times;
      return {read.tag, fault.error, 0};
    }
    const std::vector<uint8_t>& content = files_[read.file];
    const uint64_t left = content.size() - std::min<uint64_t>(content.size(), read.offset);
    const uint64_t bytes = std::min(read.bytes, left);
    if (bytes != 0) std::memcpy(read.into, content.data() + read.offset, bytes);
    bytes_read_ += bytes;
    return {read.tag, 0, bytes};
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<uint8_t>> files_;
  std::vector<Fault> faults_;
  std::vector<DiskRead> started_;
  uint64_t bytes_read_ = 0;
  bool stopped_ = false;
};

}  // namespace moewe

#endif  // MOEWE_TESTS_FAKE_DISK_H_
