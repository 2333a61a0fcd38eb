// What of a file is in the system's page cache.
#ifndef MOEWE_PLATFORM_PAGE_CACHE_H_
#define MOEWE_PLATFORM_PAGE_CACHE_H_

#include <cstdint>
#include <optional>

namespace moewe {

// Bytes of the cached pages of [offset, offset + bytes), offset a multiple of the page size;
// nothing if the system can't tell. It calls everything cached in files that this process may not
// write.
std::optional<uint64_t> CachedBytes(int fd, uint64_t offset, uint64_t bytes);

}  // namespace moewe

#endif  // MOEWE_PLATFORM_PAGE_CACHE_H_
