// What streaming experts has cost, shown: for --stats, /stats and --json.
#ifndef MOEWE_CLI_STREAM_REPORT_H_
#define MOEWE_CLI_STREAM_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/run_flags.h"
#include "moewe/moewe.h"

namespace moewe::cli {

// The one meaning of a hit rate: of uses of experts, the shares that found theirs in memory because
// it had been used ("resident") and because it had been foreseen ("prefetched"), and both
// ("total"); 0 without uses.
nlohmann::ordered_json HitRateJson(uint64_t resident, uint64_t prefetched, uint64_t missed);

// `seconds`: that were computed in, waiting included; wait_share is of them, and is left out if
// they are 0. cgroup_peak_bytes is null where it can't be read.
nlohmann::ordered_json StreamJson(const StreamingStats& stats, double seconds);

// Two lines on stderr.
void PrintStream(const StreamingStats& stats, double seconds);

// Both for the verbs that look inside of a model: adds "streaming" to `report` (unless null), and
// prints if --stats asks for it. Nothing happens if nothing was streamed.
void ReportStream(const OpenModel& open, const RunFlags& flags, double seconds,
                  nlohmann::ordered_json* report);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_STREAM_REPORT_H_
