#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "platform/file_io.h"

namespace moewe::cli {

LineReader::Event LineReader::Read(std::string* line) {
  while (true) {
    const size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      line->assign(buffer_, 0, newline);
      buffer_.erase(0, newline + 1);
      if (line->ends_with('\r')) line->pop_back();
      return Event::kLine;
    }
    if (ended_) {
      if (buffer_.empty()) return Event::kEnd;
      line->swap(buffer_);
      buffer_.clear();
      return Event::kLine;
    }
    if (Fill() == Event::kInterrupt) {
      buffer_.clear();
      return Event::kInterrupt;
    }
  }
}

LineReader::Event LineReader::Fill() {
  // The signal is let in only while ppoll waits, so none can slip in between looking and waiting.
  sigset_t interrupt, old;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &old);
  bool stopped = interrupted_->load();
  int ready = 0;
  if (!stopped) {
    sigset_t waiting = old;
    sigdelset(&waiting, SIGINT);
    pollfd input{fd_, POLLIN, 0};
    ready = ppoll(&input, 1, nullptr, &waiting);
    stopped = interrupted_->load();
  }
  const int problem = ready < 0 ? errno : 0;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (stopped) {
    interrupted_->store(false);
    return Event::kInterrupt;
  }
  if (problem == EINTR) return Event::kLine;
  char chunk[4096];
  const ssize_t n = problem == 0 ? read(fd_, chunk, sizeof chunk) : -1;
  if (n < 0) {
    if (problem != 0) errno = problem;
    if (errno == EINTR || errno == EAGAIN) return Event::kLine;
    // A terminal that is gone reads as an error; for a conversation that is its end.
    if (errno != EIO) ThrowErrno("cannot read", "stdin");
  }
  if (n > 0) {
    buffer_.append(chunk, static_cast<size_t>(n));
  } else {
    ended_ = true;
  }
  return Event::kLine;
}

}  // namespace moewe::cli
