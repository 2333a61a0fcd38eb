// How much a disk reader gives while it always has the same number of reads in flight.
#ifndef MOEWE_PLATFORM_TIMED_READS_H_
#define MOEWE_PLATFORM_TIMED_READS_H_

#include <cstdint>

#include "base/function_ref.h"
#include "moewe/error.h"
#include "platform/disk_reader.h"

namespace moewe {

struct TimedReads {
  uint64_t bytes = 0;
  double seconds = 0.0;
};

// Keeps `slots` reads in flight for about so many seconds; read_of(slot) is the next one that goes
// to a slot's memory, whatever its tag. Nothing is in flight when this returns or throws
// Error{kIo}, with `where`, because a read has failed. Reads that end after the time count only if
// they are all there is: they found the queue emptying. The reader must be idle before.
TimedReads ReadForAWhile(DiskReader* reader, uint64_t slots, double seconds,
                         FunctionRef<DiskRead(uint64_t slot)> read_of, const Where& where = {});

}  // namespace moewe

#endif  // MOEWE_PLATFORM_TIMED_READS_H_
