// What a device gives, and with how many reads in flight.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>

#include "platform/disk_devices.h"
#include "platform/disk_files.h"
#include "platform/disk_methods.h"
#include "platform/disk_pages.h"
#include "platform/disk_reader.h"
#include "platform/paths.h"
#include "platform/timed_reads.h"

namespace moewe {
namespace {

using Clock = std::chrono::steady_clock;
using Method = DiskOptions::Method;

// With a single one the disk would rest from its end until somebody notices.
constexpr uint32_t kLeastDepth = 2;
constexpr uint32_t kMostProbedDepth = 32;
// A depth or method is better if it is by so much.
constexpr double kBetter = 1.05;
constexpr uint64_t kMostMemory = uint64_t{64} << 20;
constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // a read
// Depths that are tried (2, 4, 8, 16, 32), the other method, and what was chosen.
constexpr double kSlices = 7;

class Prober {
 public:
  Prober(const std::string& file, uint64_t bytes) : file_(file) {
    const uint64_t pages = FileSize(file) / kDiskAlignment;
    const uint64_t wanted = (std::clamp<uint64_t>(bytes, 1, kMostBytes) - 1) / kDiskAlignment + 1;
    bytes_ = std::clamp<uint64_t>(wanted, 1, std::max<uint64_t>(pages, 1)) * kDiskAlignment;
    places_ = pages - std::min(pages, bytes_ / kDiskAlignment) + 1;
    most_depth_ = static_cast<uint32_t>(
        std::clamp<uint64_t>(kMostMemory / bytes_, kLeastDepth, kMostProbedDepth));
    memory_ = AllocateDiskMemory(most_depth_ * bytes_);
    if (memory_ == nullptr) throw Error(ErrorCode::kOutOfBudget, "no memory to measure a disk");
  }

  uint32_t most_depth() const { return most_depth_; }

  // Random reads for `seconds`. Throws Error{kIo} if they fail.
  DiskSpeed Measure(Method method, uint32_t depth, double seconds) {
    const auto reader =
        MakeDiskReader(OpenDiskFiles({{file_}}, true), method, std::min(depth, most_depth_), {});
    const uint32_t in_flight = reader->info().depth;
    const TimedReads reads =
        ReadForAWhile(reader.get(), in_flight, seconds,
                      [this](uint64_t slot) { return ReadOf(slot); }, {file_, "", {}});
    const double speed = reads.seconds > 0 ? static_cast<double>(reads.bytes) / reads.seconds : 0.0;
    return {speed, reader->info().method, in_flight, reader->info().direct};
  }

 private:
  DiskRead ReadOf(uint64_t slot) {
    return {0, random_() % places_ * kDiskAlignment, bytes_, memory_.get() + slot * bytes_, 0, 0};
  }

  const std::string file_;
  uint64_t bytes_ = 0;
  uint64_t places_ = 1;  // pages where a read may begin
  uint32_t most_depth_ = 0;
  DiskMemory memory_;
  std::mt19937_64 random_{std::random_device()()};
};

Method MethodOf(const std::string& name) {
  return name == "io_uring" ? Method::kUring : Method::kPread;
}

// The least depth within a few percent of the best, with the method that gives more by as much.
DiskSpeed Choose(Prober& prober, double slice) {
  DiskSpeed best = prober.Measure(Method::kAuto, kLeastDepth, slice);
  const Method method = MethodOf(best.method);
  // One doubling without a gain may be an accident; after two, more will not help.
  int in_vain = 0;
  for (uint32_t depth = 2 * kLeastDepth; depth <= prober.most_depth() && in_vain < 2; depth *= 2) {
    const DiskSpeed speed = prober.Measure(method, depth, slice);
    if (speed.bytes_per_s > kBetter * best.bytes_per_s) {
      best = speed;
      in_vain = 0;
    } else {
      ++in_vain;
    }
  }
  const Method other = method == Method::kUring ? Method::kPread : Method::kUring;
  if (!best.direct && other == Method::kUring) return best;
  const DiskSpeed speed = prober.Measure(other, best.depth, slice);
  return speed.bytes_per_s > kBetter * best.bytes_per_s ? speed : best;
}

}  // namespace

DiskSpeed ProbeDisk(const std::string& file, uint64_t bytes, double seconds) {
  Prober prober(file, bytes);
  const std::string device = DiskDevice(file);
  if (const std::optional<DiskHabit> habit = RememberedHabit(device)) {
    DiskSpeed speed = prober.Measure(MethodOf(habit->method), habit->depth, seconds);
    // Else the device is another, or what it is used through.
    if (speed.direct == habit->direct && speed.method == habit->method) return speed;
  }
  const double slice = seconds / kSlices;
  const Clock::time_point begin = Clock::now();
  const DiskSpeed chosen = Choose(prober, slice);
  const double left = seconds - std::chrono::duration<double>(Clock::now() - begin).count();
  DiskSpeed speed =
      prober.Measure(MethodOf(chosen.method), chosen.depth, std::max(left, slice / 2));
  RememberHabit(device, {speed.method, speed.depth, speed.direct});
  return speed;
}

}  // namespace moewe
