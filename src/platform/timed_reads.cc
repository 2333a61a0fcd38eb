#include "platform/timed_reads.h"

#include <chrono>
#include <string>
#include <vector>

namespace moewe {

TimedReads ReadForAWhile(DiskReader* reader, uint64_t slots, double seconds,
                         FunctionRef<DiskRead(uint64_t slot)> read_of, const Where& where) {
  using Clock = std::chrono::steady_clock;
  const auto submit = [&](uint64_t slot) {
    DiskRead read = read_of(slot);
    read.tag = slot;
    reader->Submit({&read, 1}, DiskUrgency::kDemand);
  };
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (uint64_t slot = 0; slot < slots; ++slot) submit(slot);
  Clock::time_point last = begin;
  uint64_t came = 0;
  int error = 0;  // thrown once the memory is nobody's any more
  std::vector<DiskResult> results;
  while (reader->pending() != 0) {
    results.clear();
    reader->Reap(true, &results);
    const Clock::time_point now = Clock::now();
    const bool counts = now < end || came == 0;
    for (const DiskResult& result : results) {
      if (result.error != 0) error = result.error;
      if (counts) came += result.bytes;
      if (now < end && error == 0) submit(result.tag);
    }
    if (counts) last = now;
  }
  if (error != 0) {
    throw Error(ErrorCode::kIo, "cannot read: error " + std::to_string(error), where);
  }
  return {came, std::chrono::duration<double>(last - begin).count()};
}

}  // namespace moewe
