// What a streamed model counts, as the public API has it.
#ifndef MOEWE_API_STREAMING_STATS_H_
#define MOEWE_API_STREAMING_STATS_H_

#include <optional>

#include "model/model.h"
#include "moewe/moewe.h"

namespace moewe::api {

std::optional<StreamingStats> StreamingStatsOf(const std::optional<model::StreamStats>& stats);

}  // namespace moewe::api

#endif  // MOEWE_API_STREAMING_STATS_H_
