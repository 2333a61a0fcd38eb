// Disk reads by io_uring: no threads of our own, one system call for many reads.
//
// Without kernel polling, which would take a whole core. Files and memory are registered where the
// kernel allows it, which spares it looking them up for each read.
#include "platform/disk_methods.h"

#ifdef MOEWE_HAVE_LIBURING

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "platform/disk_queue.h"
#include "platform/disk_transfer.h"

namespace moewe {
namespace {

// Memory is registered in pieces: not above the kernel's limit, not below a large page.
constexpr uint64_t kMostPiece = uint64_t{1} << 30;
constexpr uint64_t kLeastPiece = uint64_t{2} << 20;
constexpr uint64_t kPieces = 64;

// What the kernel says while it lacks memory for a moment.
bool IsPassing(int error) { return error == EAGAIN || error == EBUSY || error == ENOMEM; }

void SleepShortly() {
  const timespec millisecond = {0, 1'000'000};
  nanosleep(&millisecond, nullptr);
}

// The memory that reads go to, registered with the kernel piece by piece: each once as much was
// read into it as it holds. Registering needs the pages to be there; all at once, untouched, they
// would take seconds to come.
class RegisteredMemory {
 public:
  RegisteredMemory(io_uring* ring, std::span<uint8_t> memory) : ring_(ring), memory_(memory) {
    if (memory.empty()) return;
    const uint64_t share = (memory.size() / kPieces / kLeastPiece + 1) * kLeastPiece;
    piece_ = std::min(share, kMostPiece);
    const uint64_t count = (memory.size() - 1) / piece_ + 1;
    if (io_uring_register_buffers_sparse(ring, static_cast<unsigned>(count)) == 0) {
      pieces_.resize(count);
    }
  }

  // The registered piece that these bytes lie in; -1 if they don't.
  int Find(const uint8_t* into, uint64_t bytes) const {
    const size_t piece = PieceOf(into);
    return piece < pieces_.size() && pieces_[piece].registered && PieceOf(into + bytes - 1) == piece
               ? static_cast<int>(piece)
               : -1;
  }

  void Came(const uint8_t* into, uint64_t bytes) {
    const size_t index = PieceOf(into);
    if (index >= pieces_.size() || pieces_[index].registered || refused_) return;
    Piece& piece = pieces_[index];
    piece.came += bytes;
    const uint64_t begin = index * piece_;
    const uint64_t size = std::min(piece_, memory_.size() - begin);
    if (piece.came < size) return;
    const iovec vector = {memory_.data() + begin, size};
    __u64 tag = 0;
    piece.registered = io_uring_register_buffers_update_tag(ring_, static_cast<unsigned>(index),
                                                            &vector, &tag, 1) == 1;
    // Most likely the limit on locked memory: what is registered stays so.
    refused_ = !piece.registered;
  }

 private:
  struct Piece {
    uint64_t came = 0;
    bool registered = false;
  };

  // Not below the number of pieces: outside of the memory.
  size_t PieceOf(const uint8_t* byte) const {
    const auto at = reinterpret_cast<uintptr_t>(byte);
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
    return at < begin || at - begin >= memory_.size() ? SIZE_MAX : (at - begin) / piece_;
  }

  io_uring* ring_;
  std::span<uint8_t> memory_;
  uint64_t piece_ = kMostPiece;
  std::vector<Piece> pieces_;  // none where the kernel does not know of registering bit by bit
  bool refused_ = false;
};

class UringReader : public DiskReader {
 public:
  // Takes over a ring that was set up.
  UringReader(const io_uring& ring, DiskFiles files, uint32_t depth, std::span<uint8_t> memory)
      : ring_(ring), files_(std::move(files.files)), memory_(&ring_, memory), slots_(depth) {
    info_ = {"io_uring", files.direct, std::move(files.fallback), depth};
    for (uint32_t slot = depth; slot > 0; --slot) free_.push_back(slot - 1);
    RegisterFiles();
  }

  // The kernel must not write to memory that is somebody else's by then.
  ~UringReader() override {
    ending_ = true;
    while (in_flight() != 0) {
      if (WaitForOne() != 0) break;
      Collect();
    }
    io_uring_queue_exit(&ring_);
  }

  void Submit(std::span<const DiskRead> reads, DiskUrgency urgency) override {
    queue_.Push(reads, urgency);
    pending_ += reads.size();
    Collect();
    Start();
  }

  void Reap(bool wait, std::vector<DiskResult>* results) override {
    Collect();
    Start();
    while (wait && results_.empty() && pending_ != 0) {
      const int error = WaitForOne();
      if (error != 0) {
        throw Error(ErrorCode::kIo,
                    std::string("io_uring does not answer: ") + std::strerror(error));
      }
      Collect();
      Start();
    }
    results->insert(results->end(), results_.begin(), results_.end());
    pending_ -= results_.size();
    results_.clear();
  }

  void CancelQueued(std::vector<uint64_t>* tags) override {
    pending_ -= queue_.CancelPrefetches(tags);
  }
  void Promote(uint64_t tag) override { queue_.Promote(tag); }

  size_t pending() const override { return pending_; }
  const DiskInfo& info() const override { return info_; }

 private:
  size_t in_flight() const { return slots_.size() - free_.size(); }

  void RegisterFiles() {
    std::vector<int> descriptors;
    for (const DiskFile& file : files_) descriptors.push_back(file.descriptor.get());
    files_registered_ = !descriptors.empty() &&
                        io_uring_register_files(&ring_, descriptors.data(),
                                                static_cast<unsigned>(descriptors.size())) == 0;
  }

  // From the queue into free slots.
  void Start() {
    while (!free_.empty() && !queue_.empty()) {
      const DiskRead read = queue_.Pop();
      if (read.file >= files_.size()) {
        results_.push_back({read.tag, EBADF, 0});
        continue;
      }
      const uint32_t slot = free_.back();
      slots_[slot] = DiskTransfer(read, files_[read.file].piece());
      if (slots_[slot].done()) {  // of no bytes
        results_.push_back(slots_[slot].result());
        continue;
      }
      free_.pop_back();
      Ask(slot);
    }
    // What cannot be handed over now stays in the ring for the next time.
    if (io_uring_sq_ready(&ring_) != 0) io_uring_submit(&ring_);
  }

  void Ask(uint32_t slot) {
    const DiskTransfer& transfer = slots_[slot];
    const DiskFile& file = files_[transfer.file()];
    // There is one: a slot has at most one entry, and the ring as many as there are slots.
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const int descriptor =
        files_registered_ ? static_cast<int>(transfer.file()) : file.descriptor.get();
    const auto bytes = static_cast<unsigned>(transfer.bytes());
    const int piece = memory_.Find(transfer.into(), bytes);
    if (piece >= 0) {
      io_uring_prep_read_fixed(entry, descriptor, transfer.into(), bytes, transfer.offset(), piece);
    } else {
      io_uring_prep_read(entry, descriptor, transfer.into(), bytes, transfer.offset());
    }
    if (files_registered_) entry->flags |= IOSQE_FIXED_FILE;
    // Through the page cache, a thread of the kernel's copies instead of the caller's.
    if (!file.direct) entry->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data64(entry, slot);
  }

  // What has come so far.
  void Collect() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const auto slot = static_cast<uint32_t>(io_uring_cqe_get_data64(entry));
      const int came = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      DiskTransfer& transfer = slots_[slot];
      if (came > 0) {
        files_[transfer.file()].DropBehind(transfer.offset(), static_cast<uint64_t>(came));
        memory_.Came(transfer.into(), static_cast<uint64_t>(came));
      }
      transfer.Take(came);
      if (!transfer.done() && !ending_) {
        Ask(slot);
        continue;
      }
      if (transfer.done()) results_.push_back(transfer.result());
      free_.push_back(slot);
    }
  }

  // Until a read has moved on; an errno if that can't be.
  int WaitForOne() {
    for (;;) {
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted >= 0) return 0;
      if (IsPassing(-submitted)) {
        // Perhaps because results wait to be taken.
        if (io_uring_cq_ready(&ring_) != 0) return 0;
        SleepShortly();
      } else if (submitted != -EINTR) {
        return -submitted;
      }
    }
  }

  io_uring ring_;
  const std::vector<DiskFile> files_;
  DiskInfo info_;
  bool files_registered_ = false;
  RegisteredMemory memory_;
  bool ending_ = false;

  DiskQueue queue_;
  std::vector<DiskTransfer> slots_;  // one a read in flight
  std::vector<uint32_t> free_;       // of them
  std::vector<DiskResult> results_;  // to be reaped
  size_t pending_ = 0;
};

}  // namespace

std::unique_ptr<DiskReader> MakeUringReader(DiskFiles* files, uint32_t depth,
                                            std::span<uint8_t> memory, std::string* why_not) {
  io_uring ring = {};
  const int error = io_uring_queue_init(depth, &ring, IORING_SETUP_CLAMP);
  if (error < 0) {
    *why_not = std::string("io_uring: ") + std::strerror(-error);
    return nullptr;
  }
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  const bool reads = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  io_uring_free_probe(probe);
  if (!reads || ring.sq.ring_entries < depth) {
    io_uring_queue_exit(&ring);
    *why_not = "io_uring: this kernel's is too old";
    return nullptr;
  }
  return std::make_unique<UringReader>(ring, std::move(*files), depth, memory);
}

}  // namespace moewe

#else

namespace moewe {

std::unique_ptr<DiskReader> MakeUringReader(DiskFiles*, uint32_t, std::span<uint8_t>,
                                            std::string* why_not) {
  *why_not = "io_uring: built without liburing";
  return nullptr;
}

}  // namespace moewe

#endif  // MOEWE_HAVE_LIBURING
