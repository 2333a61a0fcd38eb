// What a device gives, and with how many reads in flight.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "platform/disk_devices.h"
#include "platform/disk_files.h"
#include "platform/disk_methods.h"
#include "platform/disk_reader.h"
#include "platform/huge_memory.h"
#include "platform/paths.h"
#include "platform/timed_reads.h"

namespace moewe {
namespace {

using Clock = std::chrono::steady_clock;
using Method = DiskOptions::Method;

// With a single one the disk would rest from its end until somebody notices.
constexpr std::array<uint32_t, 5> kDepths = {2, 4, 8, 16, 32};
// A depth is better if it is by so much.
constexpr double kBetter = 1.05;
// And pread than io_uring, since its threads want time of the cores that compute.
constexpr double kPreadBetter = 1.2;
constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // a read
// All depths, and then both methods, take turns: what a disk gives changes from moment to moment.
constexpr int kRounds = 3;
// Warming up, the turns, and one more with what was chosen, which may take longer.
constexpr double kSlices = 1 + kRounds * (kDepths.size() + 2) + 4;

// A way of reading, with what it gave so far.
struct Way {
  std::unique_ptr<DiskReader> reader;
  uint64_t bytes = 0;
  double seconds = 0.0;
  double speed() const { return seconds > 0.0 ? static_cast<double>(bytes) / seconds : 0.0; }
};

class Prober {
 public:
  Prober(const std::string& file, uint64_t bytes)
      : file_(file),
        pages_(FileSize(file) / kDiskAlignment),
        bytes_(ReadBytes(pages_, bytes)),
        places_(pages_ - std::min(pages_, bytes_ / kDiskAlignment) + 1),
        memory_(SlotsFor(kDepths.back()) * bytes_) {}

  Way Open(Method method, uint32_t depth) const {
    Way way;
    way.reader = MakeDiskReader(OpenDiskFiles({{file_}}, true), method, depth, {});
    return way;
  }

  // Random reads for `seconds` more. Throws Error{kIo} if they fail.
  void Measure(double seconds, Way* way) {
    const TimedReads reads =
        ReadForAWhile(way->reader.get(), SlotsFor(way->reader->info().depth), seconds,
                      [this](uint64_t slot) { return ReadOf(slot); }, {file_, "", {}});
    way->bytes += reads.bytes;
    way->seconds += reads.seconds;
  }

 private:
  static uint64_t ReadBytes(uint64_t pages, uint64_t bytes) {
    const uint64_t wanted = (std::clamp<uint64_t>(bytes, 1, kMostBytes) - 1) / kDiskAlignment + 1;
    return std::clamp<uint64_t>(wanted, 1, std::max<uint64_t>(pages, 1)) * kDiskAlignment;
  }

  // Reads that never leave so many pieces of them without a successor.
  uint64_t SlotsFor(uint32_t depth) const {
    const uint64_t pieces = (bytes_ - 1) / kDiskPiece + 1;
    return (depth - 1) / pieces + 2;
  }

  DiskRead ReadOf(uint64_t slot) {
    return {.file = 0,
            .offset = random_() % places_ * kDiskAlignment,
            .bytes = bytes_,
            .into = memory_.memory().data() + slot * bytes_};
  }

  const std::string file_;
  const uint64_t pages_;
  const uint64_t bytes_;
  const uint64_t places_;  // pages where a read may begin
  // Huge pages, as experts are read into: to small ones this takes three times as long.
  const HugeMemory memory_;
  std::mt19937_64 random_{std::random_device()()};
};

Method MethodOf(const std::string& name) {
  return name == "io_uring" ? Method::kUring : Method::kPread;
}

// The least depth within a few percent of the best.
Way* Best(std::span<Way> depths) {
  double most = 0.0;
  for (const Way& way : depths) most = std::max(most, way.speed());
  return &*std::find_if(depths.begin(), depths.end(),
                        [&](const Way& way) { return way.speed() * kBetter >= most; });
}

// With io_uring reads begin when somebody looks, which those who compute do now and then: so much
// more has to be on its way.
uint32_t DepthToUse(const DiskInfo& info) {
  constexpr uint32_t kLeast = 16;
  if (info.method != "io_uring") return info.depth;
  return std::clamp(2 * info.depth, kLeast, kDepths.back());
}

// The least depth that is enough, and the method.
Way Choose(Prober& prober, double slice) {
  std::vector<Way> depths;
  for (const uint32_t depth : kDepths) depths.push_back(prober.Open(Method::kAuto, depth));
  Way warm = prober.Open(Method::kAuto, kDepths.back());
  prober.Measure(slice, &warm);
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : depths) prober.Measure(slice, &way);
  }
  const DiskInfo info = Best(depths)->reader->info();
  Way chosen = prober.Open(MethodOf(info.method), DepthToUse(info));
  // Through the page cache, and where it is forbidden, io_uring is no choice.
  if (info.method != "io_uring") return chosen;
  Way other = prober.Open(Method::kPread, info.depth);
  for (int round = 0; round < kRounds; ++round) {
    prober.Measure(slice, &chosen);
    prober.Measure(slice, &other);
  }
  return other.speed() > kPreadBetter * chosen.speed() ? std::move(other) : std::move(chosen);
}

DiskSpeed SpeedOf(const Way& way) {
  const DiskInfo& info = way.reader->info();
  return {way.speed(), info.method, info.depth, info.direct};
}

}  // namespace

DiskSpeed ProbeDisk(const std::string& file, uint64_t bytes, double seconds) {
  Prober prober(file, bytes);
  const std::string device = DiskDevice(file);
  if (const std::optional<DiskHabit> habit = RememberedHabit(device)) {
    Way way = prober.Open(MethodOf(habit->method), habit->depth);
    const DiskInfo& info = way.reader->info();
    // Else the device is another, or what it is used through.
    if (info.direct == habit->direct && info.method == habit->method) {
      prober.Measure(seconds / kSlices, &way);  // warms up
      way.bytes = 0;
      way.seconds = 0.0;
      prober.Measure(seconds, &way);
      return SpeedOf(way);
    }
  }
  const double slice = seconds / kSlices;
  const Clock::time_point begin = Clock::now();
  Way way = Choose(prober, slice);
  const double left = seconds - std::chrono::duration<double>(Clock::now() - begin).count();
  prober.Measure(std::max(left, slice), &way);
  const DiskSpeed speed = SpeedOf(way);
  RememberHabit(device, {speed.method, speed.depth, speed.direct});
  return speed;
}

}  // namespace moewe
