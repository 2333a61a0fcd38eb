// Sizes in bytes as people write them.
#ifndef MOEWE_BASE_SIZE_H_
#define MOEWE_BASE_SIZE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace moewe {

// "8GiB", "500MB", "1.5 GiB", "4096", "2G": a number and a unit. KB, MB, GB, TB are powers of 1000,
// KiB ... TiB powers of 1024; a bare K, M, G, T means KiB ... TiB; no unit means bytes; case does
// not matter. Throws Error{kUsage} for anything else and for sizes that do not fit 64 bits. `what`
// names the value in the message.
uint64_t ParseSize(std::string_view text, std::string_view what = "size");

// "11.9 MB", "512 B": three significant digits, powers of 1000.
std::string FormatSize(uint64_t bytes);

}  // namespace moewe

#endif  // MOEWE_BASE_SIZE_H_
