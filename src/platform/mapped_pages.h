// Hints about the pages of mapped files, for those who walk through files larger than memory.
#ifndef MOEWE_PLATFORM_MAPPED_PAGES_H_
#define MOEWE_PLATFORM_MAPPED_PAGES_H_

#include "base/byte_reader.h"

namespace moewe {

// `part` lies in a MappedFile that lives; of other memory nothing happens. Any thread.

// It is read soon: the system may begin to fetch it.
void PrefetchPages(Bytes part);

// It was read and is not needed soon: its whole pages stop counting as this process's memory.
// Reading them again is allowed.
void ForgetPages(Bytes part);

// Like ForgetPages, and they leave the system's page cache as well, as far as nobody else has them
// mapped: reading them again reads the disk.
void DropPages(Bytes part);

// It is read here and there: the system reads single pages and none ahead, which would count as
// memory of this process's group. For parts that are mostly read by other means (DiskReader).
void ExpectRandomReads(Bytes part);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_MAPPED_PAGES_H_
