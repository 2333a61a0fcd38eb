#include "api/streaming_stats.h"

namespace moewe::api {

std::optional<StreamingStats> StreamingStatsOf(const std::optional<model::StreamStats>& stats) {
  if (!stats) return std::nullopt;
  const experts::StoreStats& store = stats->store;
  StreamingStats result;
  result.arena_bytes = store.arena_bytes;
  result.slots = store.slots;
  result.experts = store.experts;
  result.resident = store.resident;
  result.prefetched = store.prefetched;
  result.missed = store.missed;
  result.bytes_read = store.bytes_read;
  result.prefetch_reads = store.prefetch_reads;
  result.prefetch_unused = store.prefetch_unused;
  result.retries = store.retries;
  result.wait_seconds = store.wait_seconds;
  result.hidden_seconds = store.hidden_seconds();
  result.method = stats->disk.method;
  result.direct = stats->disk.direct;
  result.fallback = stats->disk.fallback;
  result.depth = stats->disk.depth;
  return result;
}

}  // namespace moewe::api
