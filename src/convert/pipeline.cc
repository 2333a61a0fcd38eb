#include "convert/pipeline.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "formats/made_bytes.h"
#include "model/weights.h"
#include "moewe/error.h"
#include "platform/mapped_pages.h"

namespace moewe::convert {
namespace {

constexpr uint64_t kQueueBytes = uint64_t{64} << 20;

// A tensor for the writer: encoded, or to be copied from the mapped source.
struct Job {
  size_t index = 0;
  std::vector<uint8_t> encoded;
  Bytes copied;
  std::optional<formats::HeldBytes> held;  // of what is copied
  Bytes bytes() const { return encoded.empty() ? copied : Bytes(encoded); }
};

// Writes jobs in order on a thread of its own.
class WriteQueue {
 public:
  WriteQueue(const ConvertPlan& plan, formats::CmfWriter& writer)
      : plan_(plan), writer_(writer), thread_([this] { Run(); }) {}

  // What is queued is still written, so that a resume finds it.
  ~WriteQueue() {
    Close();
    if (thread_.joinable()) thread_.join();
  }

  // Waits until there is room. Throws what the writing thread met.
  void Push(Job job) {
    std::unique_lock lock(mutex_);
    const uint64_t bytes = job.bytes().size();
    changed_.wait(lock, [&] { return error_ || pending_ == 0 || pending_ + bytes <= kQueueBytes; });
    if (error_) std::rethrow_exception(error_);
    pending_ += bytes;
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }

  // Returns when everything is written. Throws what the writing thread met.
  void Finish() {
    Close();
    thread_.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  void Run() {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      const uint64_t bytes = job.bytes().size();
      std::exception_ptr error;
      try {
        writer_.Write(job.index, job.bytes());
        ForgetPages(plan_.tensors[job.index].source.bytes);
      } catch (...) {
        error = std::current_exception();
      }
      job = Job();
      const std::lock_guard lock(mutex_);
      pending_ -= bytes;
      changed_.notify_all();
      if (!error) continue;
      error_ = error;
      return;
    }
  }

  const ConvertPlan& plan_;
  formats::CmfWriter& writer_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  uint64_t pending_ = 0;  // bytes queued or being written
  bool closed_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

void WriteTensors(const formats::Checkpoint& source, const ConvertPlan& plan,
                  formats::CmfWriter& writer, TensorEncoder& encoder,
                  const std::function<void(const ConvertProgress&)>& progress) {
  ConvertProgress state;
  state.tensors_total = plan.tensors.size();
  state.bytes_total = plan.source_bytes;
  WriteQueue queue(plan, writer);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& planned = plan.tensors[i];
    const formats::TensorView& tensor = planned.source;
    if (!writer.done(i)) {
      if (i + 1 < plan.tensors.size()) PrefetchPages(plan.tensors[i + 1].source.bytes);
      model::VerifyTensor(source, tensor);
      Job job;
      job.index = i;
      if (planned.copied()) {
        job.held.emplace(tensor);
        job.copied = tensor.bytes;
      } else {
        job.encoded = encoder.Encode(i);
      }
      queue.Push(std::move(job));
    }
    ++state.tensors;
    state.bytes += tensor.bytes.size();
    state.name = tensor.name;
    if (progress) progress(state);
  }
  queue.Finish();
}

}  // namespace moewe::convert
