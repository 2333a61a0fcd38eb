#include "platform/split_reader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "platform/disk_pages.h"

namespace moewe {
namespace {

class SplitReader : public DiskReader {
 public:
  SplitReader(std::unique_ptr<DiskReader> inner, uint64_t piece)
      : inner_(std::move(inner)), piece_(piece) {}

  void Submit(std::span<const DiskRead> reads, DiskUrgency urgency) override {
    pieces_.clear();
    for (const DiskRead& read : reads) {
      const uint64_t index = NewWhole(read);
      AddPieces(index, 0);
    }
    inner_->Submit(pieces_, urgency);
  }

  void Reap(bool wait, std::vector<DiskResult>* results) override {
    const size_t before = results->size();
    do {
      came_.clear();
      inner_->Reap(wait, &came_);
      for (const DiskResult& piece : came_) Take(piece, results);
    } while (wait && results->size() == before && pending_ != 0);
  }

  // A read that has begun ends: the rest of it is asked for again. Pieces of a read begin in their
  // order, so that what did not begin is its end.
  void CancelQueued(std::vector<uint64_t>* tags) override {
    cancelled_.clear();
    inner_->CancelQueued(&cancelled_);
    std::sort(cancelled_.begin(), cancelled_.end());
    pieces_.clear();
    for (size_t i = 0; i < cancelled_.size();) {
      const uint64_t index = cancelled_[i];
      uint32_t count = 0;
      for (; i < cancelled_.size() && cancelled_[i] == index; ++i) ++count;
      const Whole& whole = wholes_[index];
      if (count < whole.pieces) {
        AddPieces(index, whole.pieces - count);
        continue;
      }
      tags->push_back(whole.read.tag);
      End(index);
    }
    inner_->Submit(pieces_, DiskUrgency::kPrefetch);
  }

  void Promote(uint64_t tag) override {
    for (uint64_t i = 0; i < wholes_.size(); ++i) {
      if (wholes_[i].left != 0 && wholes_[i].read.tag == tag) inner_->Promote(i);
    }
  }

  size_t pending() const override { return pending_; }
  const DiskInfo& info() const override { return inner_->info(); }

 private:
  struct Whole {
    DiskRead read;
    uint32_t pieces = 0;
    uint32_t left = 0;  // of them, that did not come so far; 0 = the place is free
    int error = 0;
    uint64_t bytes = 0;  // that came
  };

  uint64_t NewWhole(const DiskRead& read) {
    if (free_.empty()) {
      free_.push_back(wholes_.size());
      wholes_.emplace_back();
    }
    const uint64_t index = free_.back();
    free_.pop_back();
    Whole& whole = wholes_[index];
    whole = Whole();
    whole.read = read;
    whole.pieces = std::max<uint32_t>(1, static_cast<uint32_t>((read.bytes + piece_ - 1) / piece_));
    whole.left = whole.pieces;
    ++pending_;
    return index;
  }

  // From piece number `first` on; all but the last are equal.
  void AddPieces(uint64_t index, uint32_t first) {
    const Whole& whole = wholes_[index];
    const uint64_t size = *PageEnd((whole.read.bytes + whole.pieces - 1) / whole.pieces, 0);
    for (uint32_t i = first; i < whole.pieces; ++i) {
      const uint64_t begin = std::min(i * size, whole.read.bytes);
      DiskRead piece = whole.read;
      piece.offset += begin;
      piece.into += begin;
      piece.bytes = std::min(size, whole.read.bytes - begin);
      piece.needed = std::min(piece.bytes, whole.read.needed - std::min(whole.read.needed, begin));
      piece.tag = index;
      pieces_.push_back(piece);
    }
  }

  void Take(const DiskResult& piece, std::vector<DiskResult>* results) {
    Whole& whole = wholes_[piece.tag];
    // Behind the end of a file nothing comes: the sum is what came from the beginning on.
    whole.bytes += piece.bytes;
    if (whole.error == 0) whole.error = piece.error;
    if (--whole.left != 0) return;
    results->push_back({whole.read.tag, whole.error, whole.bytes});
    End(piece.tag);
  }

  void End(uint64_t index) {
    wholes_[index].left = 0;
    free_.push_back(index);
    --pending_;
  }

  const std::unique_ptr<DiskReader> inner_;
  const uint64_t piece_;
  std::vector<Whole> wholes_;   // by the tags of their pieces
  std::vector<uint64_t> free_;  // places in it
  size_t pending_ = 0;
  std::vector<DiskRead> pieces_;  // of the call that runs, like the next two
  std::vector<DiskResult> came_;
  std::vector<uint64_t> cancelled_;
};

}  // namespace

std::unique_ptr<DiskReader> SplitReads(std::unique_ptr<DiskReader> reader, uint64_t piece) {
  return std::make_unique<SplitReader>(std::move(reader), piece);
}

}  // namespace moewe
