#include "platform/reserved_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/size.h"
#include "moewe/error.h"

namespace moewe {
namespace {

[[noreturn]] void NoMemory(size_t bytes, int error) {
  throw Error(ErrorCode::kOutOfBudget,
              fmt::format("no {} of memory: {}", FormatSize(bytes), std::strerror(error)));
}

}  // namespace

ReservedMemory::ReservedMemory(size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) NoMemory(bytes, errno);
  memory_ = {static_cast<uint8_t*>(memory), bytes};
}

ReservedMemory::~ReservedMemory() { munmap(memory_.data(), memory_.size()); }

void ReservedMemory::Use() {
  if (mprotect(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE) != 0) {
    NoMemory(memory_.size(), errno);
  }
}

void ReservedMemory::GiveBack() {
  madvise(memory_.data(), memory_.size(), MADV_DONTNEED);
  mprotect(memory_.data(), memory_.size(), PROT_NONE);
}

}  // namespace moewe
