#include "experts/expert_reads.h"

#include <algorithm>

#include "base/byte_reader.h"
#include "moewe/error.h"

namespace moewe::experts {
namespace {

uint64_t PageBegin(uint64_t offset) { return offset / kDiskAlignment * kDiskAlignment; }

// Of the last page that the extent needs.
uint64_t PageEnd(const Extent& extent) {
  const std::optional<uint64_t> end = CheckedAdd(extent.offset, extent.nbytes);
  const std::optional<uint64_t> up = end ? CheckedAdd(*end, kDiskAlignment - 1) : std::nullopt;
  if (!up) throw Error(ErrorCode::kBounds, "an expert's bytes end past any file");
  return PageBegin(*up);
}

}  // namespace

ReadPlan PlanReads(const StoredExpert& expert) {
  std::array<uint32_t, 3> order = {0, 1, 2};
  std::sort(order.begin(), order.end(), [&expert](uint32_t a, uint32_t b) {
    const Extent& left = expert[a];
    const Extent& right = expert[b];
    return left.file != right.file ? left.file < right.file : left.offset < right.offset;
  });
  ReadPlan plan;
  plan.part_at.fill(0);
  for (const uint32_t part : order) {
    const Extent& extent = expert[part];
    if (extent.nbytes == 0) continue;
    const uint64_t begin = PageBegin(extent.offset);
    const uint64_t end = PageEnd(extent);
    PlannedRead* read = plan.count == 0 ? nullptr : &plan.reads[plan.count - 1];
    if (read == nullptr || read->file != extent.file || begin > read->offset + read->bytes) {
      read = &plan.reads[plan.count++];
      *read = {extent.file, begin, 0, 0, plan.slot_bytes};
    }
    read->bytes = std::max(read->bytes, end - read->offset);
    read->needed = std::max(read->needed, extent.offset + extent.nbytes - read->offset);
    plan.part_at[part] = read->place + (extent.offset - read->offset);
    plan.slot_bytes = read->place + read->bytes;
  }
  return plan;
}

}  // namespace moewe::experts
