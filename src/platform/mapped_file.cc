#include "platform/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

#include "platform/file_io.h"
#include "platform/mapped_pages.h"

namespace moewe {

// One mapping as the signal handler sees it: published by storing `begin` last, withdrawn by
// clearing it first. Ranges are never freed, only reused, so that the handler may walk the list at
// any time.
struct MappedRange {
  std::atomic<uintptr_t> begin{0};  // 0 = free
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
  FileDescriptor file;  // for what is said about its pages; not for the handler
  MappedRange* next = nullptr;
};

namespace {

std::atomic<MappedRange*> g_ranges{nullptr};
std::mutex g_mutex;  // serializes registration; never taken by the handler
uintptr_t g_page_size = 4096;
struct sigaction g_previous;

// Only async-signal-safe calls here. The system call itself, since a thread sanitizer takes mmap()
// for a write that races with the reader whose page is replaced.
void OnBusError(int signal_number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (MappedRange* range = g_ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next) {
    const uintptr_t begin = range->begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= range->end.load(std::memory_order_acquire)) {
      continue;
    }
    range->damaged.store(true, std::memory_order_release);
    void* page = reinterpret_cast<void*>(address & ~(g_page_size - 1));
    const long mapped = syscall(SYS_mmap, page, g_page_size, PROT_READ,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (reinterpret_cast<void*>(mapped) == page) {
      errno = saved_errno;
      return;
    }
  }
  // Not ours.
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal_number, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal_number);
  } else {
    // The faulting instruction runs again and meets the default action.
    signal(SIGBUS, SIG_DFL);
  }
  errno = saved_errno;
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &g_previous);
  });
}

MappedRange* Register(Bytes bytes, FileDescriptor file) {
  InstallHandler();
  const std::lock_guard lock(g_mutex);
  MappedRange* range = g_ranges.load(std::memory_order_relaxed);
  while (range != nullptr && range->begin.load(std::memory_order_relaxed) != 0) range = range->next;
  const bool fresh = range == nullptr;
  if (fresh) range = new MappedRange;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  range->damaged.store(false, std::memory_order_relaxed);
  range->file = std::move(file);
  range->end.store(begin + bytes.size(), std::memory_order_release);
  range->begin.store(begin, std::memory_order_release);
  if (fresh) {
    range->next = g_ranges.load(std::memory_order_relaxed);
    g_ranges.store(range, std::memory_order_release);
  }
  return range;
}

void Unregister(MappedRange* range) {
  const std::lock_guard lock(g_mutex);
  range->begin.store(0, std::memory_order_release);
  range->file.Close();
}

}  // namespace

std::unique_ptr<MappedFile> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe waits for somebody who writes.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) ThrowErrno("cannot open", path);
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) ThrowErrno("cannot read", path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo, S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file",
                {path, ""});
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return std::unique_ptr<MappedFile>(new MappedFile(path, {}));
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) ThrowErrno("cannot map", path);
  const Bytes bytes(static_cast<const uint8_t*>(memory), size);
  std::unique_ptr<MappedFile> mapped(new MappedFile(path, bytes));
  mapped->range_ = Register(bytes, std::move(file));
  return mapped;
}

MappedFile::MappedFile(std::string path, Bytes bytes) : path_(std::move(path)), bytes_(bytes) {}

MappedFile::~MappedFile() {
  if (range_ == nullptr) return;
  Unregister(range_);
  munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

bool MappedFile::damaged() const {
  return range_ != nullptr && range_->damaged.load(std::memory_order_acquire);
}

void MappedFile::Check() const {
  if (damaged()) {
    throw Error(ErrorCode::kIo, "the file became shorter while it was read", {path_, ""});
  }
}

namespace {

// What a part of a mapping means for the system: whole pages inside of it only, since those at its
// ends may hold what others read.
struct MappedPart {
  uintptr_t begin = 0;
  uintptr_t end = 0;    // not above begin: nothing to be done
  uint64_t offset = 0;  // of `begin` in the file
  int descriptor = -1;
};

// Empty unless `part` lies in one of our mappings (memory that is no file would lose its content),
// and in a damaged one: a page of zeros that stands for a lost one is the reader's to notice.
MappedPart WholePages(Bytes part) {
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t end = begin + part.size();
  for (MappedRange* range = g_ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next) {
    const uintptr_t first = range->begin.load(std::memory_order_acquire);
    const uintptr_t last = range->end.load(std::memory_order_acquire);
    if (first == 0 || begin < first || end > last) continue;
    if (range->damaged.load(std::memory_order_acquire)) return {};
    const uintptr_t from = (begin + g_page_size - 1) / g_page_size * g_page_size;
    // Behind the end of the file there is nothing of others.
    const uintptr_t whole_end = end == last ? end + g_page_size - 1 : end;
    return {from, whole_end / g_page_size * g_page_size, from - first, range->file.get()};
  }
  return {};
}

void Advise(const MappedPart& part, int advice) {
  if (part.end > part.begin) {
    madvise(reinterpret_cast<void*>(part.begin), part.end - part.begin, advice);
  }
}

}  // namespace

void PrefetchPages(Bytes part) { Advise(WholePages(part), MADV_WILLNEED); }

void ForgetPages(Bytes part) { Advise(WholePages(part), MADV_DONTNEED); }

void DropPages(Bytes part) {
  const MappedPart pages = WholePages(part);
  Advise(pages, MADV_DONTNEED);
  if (pages.end > pages.begin) {
    posix_fadvise(pages.descriptor, static_cast<off_t>(pages.offset),
                  static_cast<off_t>(pages.end - pages.begin), POSIX_FADV_DONTNEED);
  }
}

void ExpectRandomReads(Bytes part) { Advise(WholePages(part), MADV_RANDOM); }

}  // namespace moewe
