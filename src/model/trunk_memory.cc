#include "model/trunk_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "moewe/error.h"
#include "platform/disk_pages.h"

namespace moewe::model {
namespace {

using formats::TensorView;

constexpr uint64_t kReadBytes = uint64_t{4} << 20;

// Trunk tensors that are in files, as they lie there.
std::vector<uint32_t> TrunkInOrder(std::span<const TensorView> tensors,
                                   std::span<const TensorUse> uses) {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (uses[i] == TensorUse::kTrunk && tensor.file_offset != formats::kNotInFile &&
        !tensor.bytes.empty()) {
      order.push_back(i);
    }
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tie(tensors[a].file_index, tensors[a].file_offset) <
           std::tie(tensors[b].file_index, tensors[b].file_offset);
  });
  return order;
}

// Tensors lie within their files, so that no sum here overflows.
struct TrunkLayout {
  TrunkLayout(std::span<const TensorView> tensors, std::vector<uint32_t> in_order)
      : order(std::move(in_order)) {
    for (const uint32_t i : order) {
      const TensorView& tensor = tensors[i];
      const uint64_t size = tensor.bytes.size();
      const uint64_t end = PageEnd(tensor.file_offset, size).value();
      if (runs.empty() || !runs.back().Add(tensor.file_index, tensor.file_offset, size, end)) {
        runs.push_back({tensor.file_index, PageBegin(tensor.file_offset), end,
                        tensor.file_offset + size, bytes});
      }
      const PageRun& run = runs.back();
      bytes = run.place + (run.end - run.begin);
      places.push_back(run.place + (tensor.file_offset - run.begin));
    }
  }

  std::vector<uint32_t> order;   // tensors as they lie in the files
  std::vector<uint64_t> places;  // ... and in memory
  std::vector<PageRun> runs;
  uint64_t bytes = 0;
};

std::vector<DiskRead> ReadsOf(const TrunkLayout& layout, uint8_t* memory) {
  std::vector<DiskRead> reads;
  for (const PageRun& run : layout.runs) {
    for (uint64_t at = run.begin; at < run.end; at += kReadBytes) {
      DiskRead read;
      read.file = run.file;
      read.offset = at;
      read.bytes = std::min(kReadBytes, run.end - at);
      read.into = memory + run.place + (at - run.begin);
      read.needed = std::min(read.bytes, run.needed_end - at);
      read.tag = reads.size();
      reads.push_back(read);
    }
  }
  return reads;
}

[[noreturn]] void ThrowFailed(const formats::Checkpoint& checkpoint, const DiskRead& read,
                              const DiskResult& result) {
  throw Error(ErrorCode::kIo,
              result.error == 0
                  ? std::string("the file ends before the weights do")
                  : std::string("cannot read weights: ") + std::strerror(result.error),
              {checkpoint.files()[read.file], "", read.offset});
}

std::unique_ptr<HugeMemory> Read(const formats::Checkpoint& checkpoint, const TrunkLayout& layout,
                                 std::unique_ptr<DiskReader> given,
                                 std::vector<TensorView>* tensors) {
  auto arena = std::make_unique<HugeMemory>(layout.bytes);
  // Before the memory goes, after an error too, it waits for its reads.
  const std::unique_ptr<DiskReader> reader = std::move(given);
  const std::vector<DiskRead> reads = ReadsOf(layout, arena->memory().data());
  std::vector<bool> repeated(reads.size(), false);
  std::vector<DiskResult> results;
  reader->Submit(reads, DiskUrgency::kDemand);
  while (reader->pending() > 0) {
    results.clear();
    reader->Reap(/*wait=*/true, &results);
    for (const DiskResult& result : results) {
      const DiskRead& read = reads[result.tag];
      if (result.ok(read.needed)) continue;
      if (repeated[result.tag]) ThrowFailed(checkpoint, read, result);
      repeated[result.tag] = true;
      reader->Submit({&read, 1}, DiskUrgency::kDemand);
    }
  }
  for (size_t i = 0; i < layout.order.size(); ++i) {
    TensorView& tensor = (*tensors)[layout.order[i]];
    tensor.bytes = Bytes(arena->memory().data() + layout.places[i], tensor.bytes.size());
  }
  return arena;
}

}  // namespace

uint64_t TrunkMemoryBytes(std::span<const TensorView> tensors, std::span<const TensorUse> uses) {
  return TrunkLayout(tensors, TrunkInOrder(tensors, uses)).bytes;
}

void TrunkMemory::Hold(const formats::Checkpoint& checkpoint, std::span<const TensorUse> uses,
                       const MakeReader& make_reader, std::vector<TensorView>* tensors) {
  std::vector<uint32_t> missing;
  std::vector<Part> needed;
  for (const uint32_t i : TrunkInOrder(*tensors, uses)) {
    TensorView& tensor = (*tensors)[i];
    const Part* part = Find(tensor);
    if (part == nullptr) {
      missing.push_back(i);
      continue;
    }
    const uint64_t begin = PageBegin(tensor.file_offset);
    const uint64_t end = PageEnd(tensor.file_offset, tensor.bytes.size()).value();
    needed.push_back({part->file, begin, end, part->at + (begin - part->begin)});
    tensor.bytes = Bytes(part->at + (tensor.file_offset - part->begin), tensor.bytes.size());
  }
  KeepOnly(needed);
  if (missing.empty()) return;
  const TrunkLayout layout(*tensors, std::move(missing));
  arenas_.push_back(Read(checkpoint, layout, make_reader(), tensors));
  uint8_t* memory = arenas_.back()->memory().data();
  for (const PageRun& run : layout.runs) {
    parts_.push_back({run.file, run.begin, run.end, memory + run.place});
  }
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  });
}

// Parts may share pages at their edges: of those that begin before the tensor, the last two matter.
const TrunkMemory::Part* TrunkMemory::Find(const TensorView& tensor) const {
  const auto behind = std::upper_bound(
      parts_.begin(), parts_.end(), tensor, [](const TensorView& wanted, const Part& part) {
        return std::tie(wanted.file_index, wanted.file_offset) < std::tie(part.file, part.begin);
      });
  for (auto part = behind; part != parts_.begin();) {
    --part;
    if (part->file != tensor.file_index) break;
    if (tensor.file_offset + tensor.bytes.size() <= part->end) return &*part;
    if (behind - part == 2) break;
  }
  return nullptr;
}

// `needed` in the order of the files.
void TrunkMemory::KeepOnly(std::span<const Part> needed) {
  std::vector<Part> kept;
  for (const Part& part : needed) {
    Part* last = kept.empty() ? nullptr : &kept.back();
    // Neighbours in memory as in the file become one again.
    if (last != nullptr && last->file == part.file && part.begin <= last->end &&
        part.at == last->at + (part.begin - last->begin)) {
      last->end = std::max(last->end, part.end);
    } else {
      kept.push_back(part);
    }
  }
  // What is kept of an arena, in the order of its memory; the gaps go back to the system.
  std::sort(kept.begin(), kept.end(),
            [](const Part& a, const Part& b) { return std::less<>()(a.at, b.at); });
  std::erase_if(arenas_, [&](const std::unique_ptr<HugeMemory>& arena) {
    uint8_t* at = arena->memory().data();
    uint8_t* const end = at + arena->memory().size();
    const bool holds = std::any_of(
        kept.begin(), kept.end(), [&](const Part& part) { return part.at >= at && part.at < end; });
    if (!holds) return true;
    const auto give_back = [](uint8_t* from, uint8_t* to) {
      if (to > from) madvise(from, static_cast<size_t>(to - from), MADV_DONTNEED);
    };
    for (const Part& part : kept) {
      if (part.at < arena->memory().data() || part.at >= end) continue;
      give_back(at, part.at);
      at = std::max(at, part.at + (part.end - part.begin));
    }
    give_back(at, end);
    return false;
  });
  std::sort(kept.begin(), kept.end(), [](const Part& a, const Part& b) {
    return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
  });
  parts_ = std::move(kept);
}

}  // namespace moewe::model
