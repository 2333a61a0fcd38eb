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

}  // namespace moewe

#endif  // MOEWE_PLATFORM_MAPPED_PAGES_H_
