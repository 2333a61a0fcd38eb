#include "platform/huge_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "base/byte_reader.h"
#include "base/size.h"
#include "moewe/error.h"

namespace moewe {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kPage = 4096;

}  // namespace

HugeMemory::HugeMemory(uint64_t bytes) {
  // One huge page more, of which what lies before and behind the aligned part is given back.
  const uint64_t wanted = (bytes + kPage - 1) / kPage * kPage;
  const std::optional<uint64_t> reserved = CheckedAdd(wanted, kHugePage);
  void* memory = MAP_FAILED;
  int error = ENOMEM;
  if (wanted >= bytes && reserved && *reserved <= std::numeric_limits<size_t>::max()) {
    memory = mmap(nullptr, *reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    error = errno;
  }
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kOutOfBudget,
                fmt::format("no {} of memory: {}", FormatSize(bytes), std::strerror(error)));
  }
  auto* start = static_cast<uint8_t*>(memory);
  const uint64_t past = reinterpret_cast<uintptr_t>(start) % kHugePage;
  const uint64_t before = past == 0 ? 0 : kHugePage - past;
  if (before > 0) munmap(start, before);
  if (before < kHugePage) munmap(start + before + wanted, kHugePage - before);
  memory_ = {start + before, static_cast<size_t>(wanted)};
  madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);  // a hint: without it, small pages
}

HugeMemory::~HugeMemory() { munmap(memory_.data(), memory_.size()); }

}  // namespace moewe
