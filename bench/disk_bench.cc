// Random reads of a file by method, size and depth, as a Markdown table:
//
//   disk_bench FILE [SECONDS]      a file of several GB, on the disk that is meant
//
// A depth is of reads, or of the pieces that a large direct one is divided into.
// Rounds over all cells, so that a disk that slows down (virtual ones do, after a burst) does so
// for all of them; a cell is the median of its rounds. CPU is the whole process's, in percent of a
// core.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "moewe/error.h"
#include "platform/disk_reader.h"
#include "platform/huge_memory.h"
#include "platform/paths.h"

namespace moewe {
namespace {

using Clock = std::chrono::steady_clock;
using Method = DiskOptions::Method;

constexpr int kRounds = 3;

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Cell {
  double bytes_per_s = 0.0;
  double cpu = 0.0;         // cores
  double latency_ms = 0.0;  // mean of a read, from Submit to Reap
};

struct Setup {
  std::string label;
  Method method = Method::kUring;
  bool direct = true;
  bool registered = true;
};

Cell Measure(const std::string& file, const Setup& setup, uint64_t bytes, uint32_t depth,
             double seconds, std::span<uint8_t> memory, std::mt19937_64& random) {
  const auto reader = OpenDiskReader({{file}}, {setup.method, setup.direct, depth,
                                                setup.registered ? memory : std::span<uint8_t>()});
  const uint64_t places = (FileSize(file) - bytes) / kDiskAlignment;
  std::vector<Clock::time_point> begun(depth);
  const auto submit = [&](uint64_t slot) {
    begun[slot] = Clock::now();
    const DiskRead read = {
        0, random() % places * kDiskAlignment, bytes, memory.data() + slot * bytes, bytes, slot};
    reader->Submit({&read, 1}, DiskUrgency::kDemand);
  };
  const double cpu = CpuSeconds();
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  for (uint32_t slot = 0; slot < depth; ++slot) submit(slot);
  double latency = 0.0;
  uint64_t reads = 0;
  std::vector<DiskResult> results;
  while (reader->pending() != 0) {
    results.clear();
    reader->Reap(true, &results);
    for (const DiskResult& result : results) {
      if (!result.ok(bytes)) throw Error(ErrorCode::kIo, "a read failed", {file, ""});
      latency += std::chrono::duration<double>(Clock::now() - begun[result.tag]).count();
      ++reads;
      if (elapsed() < seconds) submit(result.tag);
    }
  }
  const double took = elapsed();
  return {static_cast<double>(reads * bytes) / took, (CpuSeconds() - cpu) / took,
          1e3 * latency / static_cast<double>(reads)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Table(const std::string& file, uint64_t bytes, double seconds) {
  const std::vector<Setup> setups = {
      {"io_uring, direct", Method::kUring, true, true},
      {"the same, memory not registered", Method::kUring, true, false},
      {"pread, direct", Method::kPread, true, false},
      {"io_uring, buffered", Method::kUring, false, false},
      {"pread, buffered", Method::kPread, false, false}};
  const std::vector<uint32_t> depths = {2, 4, 8, 16, 32};
  const uint64_t size = depths.back() * bytes;
  const HugeMemory memory(size);  // small pages would be what is measured
  std::mt19937_64 random(1);
  std::vector<std::vector<std::vector<Cell>>> cells(setups.size(),
                                                    std::vector<std::vector<Cell>>(depths.size()));
  for (int round = 0; round < kRounds; ++round) {
    for (size_t s = 0; s < setups.size(); ++s) {
      for (size_t d = 0; d < depths.size(); ++d) {
        cells[s][d].push_back(
            Measure(file, setups[s], bytes, depths[d], seconds, memory.memory(), random));
      }
    }
  }
  fmt::print("\nReads of {} KiB: GB/s, CPU, ms a read\n\n| |", bytes >> 10);
  for (const uint32_t depth : depths) fmt::print(" depth {} |", depth);
  fmt::print("\n| --- |");
  for (size_t d = 0; d < depths.size(); ++d) fmt::print(" --- |");
  for (size_t s = 0; s < setups.size(); ++s) {
    fmt::print("\n| {} |", setups[s].label);
    for (const std::vector<Cell>& rounds : cells[s]) {
      std::vector<double> speed, cpu, latency;
      for (const Cell& cell : rounds) {
        speed.push_back(cell.bytes_per_s / 1e9);
        cpu.push_back(100 * cell.cpu);
        latency.push_back(cell.latency_ms);
      }
      fmt::print(" {:.2f}, {:.0f} %, {:.1f} |", Median(speed), Median(cpu), Median(latency));
    }
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace moewe

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: disk_bench FILE [SECONDS a cell]\n");
    return 2;
  }
  try {
    const double seconds = argc > 2 ? std::atof(argv[2]) : 0.5;
    moewe::DropFromPageCache(argv[1]);
    for (const uint64_t kib : {64, 864, 2656}) moewe::Table(argv[1], kib << 10, seconds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
