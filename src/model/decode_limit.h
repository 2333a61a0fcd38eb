// What decoding cannot be faster than: a token's weights once through memory, and those of them
// that are not in memory once from the disk, at best at the same time.
#ifndef MOEWE_MODEL_DECODE_LIMIT_H_
#define MOEWE_MODEL_DECODE_LIMIT_H_

#include <algorithm>

namespace moewe::model {

struct DecodeLimit {
  double bytes = 0.0;          // that a token reads, wherever they are
  double expert_bytes = 0.0;   // of them, of routed experts that are streamed
  double resident_rate = 1.0;  // share of those that is in memory before anybody asks
  double memory_bytes_per_s = 0.0;
  double disk_bytes_per_s = 0.0;  // looked at if something is missing

  double memory_seconds() const { return bytes / memory_bytes_per_s; }
  double disk_seconds() const {
    const double missing = (1.0 - resident_rate) * expert_bytes;
    return missing > 0.0 ? missing / disk_bytes_per_s : 0.0;
  }
  double tokens_per_s() const { return 1.0 / std::max(memory_seconds(), disk_seconds()); }
  bool disk_limits() const { return disk_seconds() > memory_seconds(); }
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_DECODE_LIMIT_H_
