#include "cli/line_reader.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "cli/interrupt.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::cli {

LineReader::Event LineReader::Read(std::string* line) {
  while (true) {
    const size_t newline = buffer_.find('\n', searched_);
    if (newline != std::string::npos) {
      line->assign(buffer_, begin_, newline - begin_);
      begin_ = searched_ = newline + 1;
      if (line->ends_with('\r')) line->pop_back();
      return Event::kLine;
    }
    // The rest of the buffer is the beginning of a line.
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched_ = buffer_.size();
    if (ended_) {
      if (buffer_.empty()) return Event::kEnd;
      line->swap(buffer_);
      buffer_.clear();
      searched_ = 0;
      return Event::kLine;
    }
    if (buffer_.size() > kLongestLine) {
      throw Error(ErrorCode::kBounds,
                  "a line is longer than the " + std::to_string(kLongestLine) + " bytes it may be",
                  {name_, ""});
    }
    if (Fill() == Event::kInterrupt) {
      buffer_.clear();
      searched_ = 0;
      return Event::kInterrupt;
    }
  }
}

LineReader::Event LineReader::Fill() {
  if (!WaitForInput(fd_, *interrupted_)) {
    interrupted_->store(false);
    return Event::kInterrupt;
  }
  std::array<char, 1 << 16> chunk;
  const ssize_t n = read(fd_, chunk.data(), chunk.size());
  if (n < 0) {
    if (errno == EINTR || errno == EAGAIN) return Event::kLine;
    // A terminal that is gone reads as an error; for a conversation that is its end.
    if (errno != EIO) ThrowErrno("cannot read", name_);
  }
  if (n > 0) {
    buffer_.append(chunk.data(), static_cast<size_t>(n));
  } else {
    ended_ = true;
  }
  return Event::kLine;
}

}  // namespace moewe::cli
