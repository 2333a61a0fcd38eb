#include "model/trunk_memory.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "moewe/error.h"
#include "platform/disk_pages.h"

namespace moewe::model {
namespace {

using formats::TensorView;

constexpr uint64_t kReadBytes = uint64_t{4} << 20;

// Tensors lie within their files, so that no sum here overflows.
struct TrunkLayout {
  TrunkLayout(std::span<const TensorView> tensors, std::span<const TensorUse> uses) {
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

}  // namespace

uint64_t TrunkMemoryBytes(std::span<const TensorView> tensors, std::span<const TensorUse> uses) {
  return TrunkLayout(tensors, uses).bytes;
}

std::unique_ptr<experts::Arena> ReadTrunk(const formats::Checkpoint& checkpoint,
                                          std::span<const TensorUse> uses,
                                          std::unique_ptr<DiskReader> given,
                                          std::vector<TensorView>* tensors) {
  const TrunkLayout layout(*tensors, uses);
  auto arena = std::make_unique<experts::Arena>(layout.bytes);
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

}  // namespace moewe::model
