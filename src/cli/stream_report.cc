#include "cli/stream_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "api/streaming_stats.h"
#include "base/size.h"
#include "platform/memory_limits.h"

namespace moewe::cli {
namespace {

uint64_t Uses(const StreamingStats& stats) {
  return stats.resident + stats.prefetched + stats.missed;
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

nlohmann::ordered_json HitRateJson(uint64_t resident, uint64_t prefetched, uint64_t missed) {
  const uint64_t uses = resident + prefetched + missed;
  return {{"resident", Share(resident, uses)},
          {"prefetched", Share(prefetched, uses)},
          {"total", Share(resident + prefetched, uses)}};
}

nlohmann::ordered_json StreamJson(const StreamingStats& stats, double seconds) {
  const uint64_t uses = Uses(stats);
  nlohmann::ordered_json json = {
      {"arena_bytes", stats.arena_bytes},
      {"slots", stats.slots},
      {"experts", stats.experts},
      {"uses", uses},
      {"resident", stats.resident},
      {"prefetched", stats.prefetched},
      {"missed", stats.missed},
      {"hit_rate", HitRateJson(stats.resident, stats.prefetched, stats.missed)},
      {"bytes_read", stats.bytes_read},
      {"prefetch_reads", stats.prefetch_reads},
      {"prefetch_unused", stats.prefetch_unused},
      {"retries", stats.retries},
      {"wait_seconds", stats.wait_seconds},
      {"hidden_seconds", stats.hidden_seconds}};
  if (seconds > 0.0) json["wait_share"] = stats.wait_seconds / seconds;
  json["disk"] = {{"method", stats.method}, {"depth", stats.depth}, {"direct", stats.direct}};
  if (!stats.fallback.empty()) json["disk"]["fallback"] = stats.fallback;
  json["cgroup_peak_bytes"] = nullptr;
  if (const auto peak = ReadCgroupPeak()) json["cgroup_peak_bytes"] = *peak;
  return json;
}

void PrintStream(const StreamingStats& stats, double seconds) {
  const uint64_t uses = Uses(stats);
  const auto percent = [&](uint64_t part) { return 100.0 * Share(part, uses); };
  std::string lines = fmt::format(
      "experts: {} uses, {:.1f} % resident, {:.1f} % prefetched, {:.1f} % missed; {} read, "
      "{:.2f} s waited for",
      uses, percent(stats.resident), percent(stats.prefetched), percent(stats.missed),
      FormatSize(stats.bytes_read), stats.wait_seconds);
  if (seconds > 0.0) lines += fmt::format(" ({:.0f} %)", 100.0 * stats.wait_seconds / seconds);
  lines += fmt::format(", {:.2f} s of the disk hidden behind computing", stats.hidden_seconds);
  lines += fmt::format(
      "\narena: {} for {} of {} experts; {} read ahead, {} of them in vain; disk: {}, {}, depth {}",
      FormatSize(stats.arena_bytes), stats.slots, stats.experts, stats.prefetch_reads,
      stats.prefetch_unused, stats.method, stats.direct ? "direct" : "through the page cache",
      stats.depth);
  if (!stats.fallback.empty()) lines += " (" + stats.fallback + ")";
  if (stats.retries != 0) lines += fmt::format("; {} reads repeated", stats.retries);
  if (const auto peak = ReadCgroupPeak()) {
    lines += "; peak of the control group " + FormatSize(*peak);
  }
  std::fprintf(stderr, "%s\n", lines.c_str());
}

void ReportStream(const OpenModel& open, const RunFlags& flags, double seconds,
                  nlohmann::ordered_json* report) {
  const auto stats = api::StreamingStatsOf(open.model->stream_stats());
  if (!stats) return;
  if (report != nullptr) (*report)["streaming"] = StreamJson(*stats, seconds);
  if (flags.stats) PrintStream(*stats, seconds);
}

}  // namespace moewe::cli
