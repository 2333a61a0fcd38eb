#include "experts/expert_reads.h"

#include <algorithm>

#include "moewe/error.h"
#include "platform/disk_pages.h"

namespace moewe::experts {

ReadPlan PlanReads(const StoredExpert& expert) {
  std::array<uint32_t, 3> order = {0, 1, 2};
  std::sort(order.begin(), order.end(), [&expert](uint32_t a, uint32_t b) {
    const Extent& left = expert[a];
    const Extent& right = expert[b];
    return left.file != right.file ? left.file < right.file : left.offset < right.offset;
  });
  ReadPlan plan;
  plan.part_at.fill(0);
  PageRun run;
  for (const uint32_t part : order) {
    const Extent& extent = expert[part];
    if (extent.nbytes == 0) continue;
    const std::optional<uint64_t> end = PageEnd(extent.offset, extent.nbytes);
    if (!end) throw Error(ErrorCode::kBounds, "an expert's bytes end past any file");
    if (plan.count == 0 || !run.Add(extent.file, extent.offset, extent.nbytes, *end)) {
      ++plan.count;
      run = {extent.file, PageBegin(extent.offset), *end, extent.offset + extent.nbytes,
             plan.slot_bytes};
    }
    plan.reads[plan.count - 1] = {run.file, run.begin, run.end - run.begin,
                                  run.needed_end - run.begin, run.place};
    plan.part_at[part] = run.place + (extent.offset - run.begin);
    plan.slot_bytes = run.place + (run.end - run.begin);
  }
  return plan;
}

}  // namespace moewe::experts
