#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/size.h"

namespace moewe {
namespace {

constexpr size_t kBarWidth = 24;
constexpr size_t kDefaultColumns = 80;

size_t TerminalColumns(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return kDefaultColumns;
  return size.ws_col;
}

std::string Remaining(double seconds) {
  const auto whole = std::llround(seconds);
  return whole < 60 ? fmt::format("{} s left", whole)
                    : fmt::format("{}:{:02} min left", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string label, uint64_t total, std::FILE* out)
    : Progress(std::move(label), total, out, out != nullptr && isatty(fileno(out)) == 1, Pace()) {}

Progress::Progress(std::string label, uint64_t total, std::FILE* out, bool terminal, Pace pace)
    : label_(std::move(label)), total_(total), out_(out), terminal_(terminal), pace_(pace) {}

void Progress::Update(uint64_t done, std::string_view item) {
  if (out_ == nullptr) return;
  const Clock::time_point now = Clock::now();
  const auto pause = terminal_ ? pace_.redraw : pace_.line;
  if (!started_) {
    started_ = true;
    first_ = done;
    start_ = now;
    next_ = now + pause;
  }
  if (now < next_) return;
  next_ = now + pause;
  const std::string text = Text(done, std::chrono::duration<double>(now - start_).count());
  if (!terminal_) {
    std::fprintf(out_, "moewe: %s: %s\n", label_.c_str(), text.c_str());
    std::fflush(out_);
    return;
  }
  const double fraction =
      total_ == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_);
  const auto full = static_cast<size_t>(std::min(1.0, fraction) * double{kBarWidth});
  std::string line = fmt::format("{} [{}{}] {}  {}", label_, std::string(full, '#'),
                                 std::string(kBarWidth - full, '.'), text, item);
  line.resize(std::min(line.size(), TerminalColumns(out_) - 1));
  std::fprintf(out_, "\r%s\x1b[K", line.c_str());
  std::fflush(out_);
  drawn_ = true;
}

std::string Progress::Text(uint64_t done, double seconds) const {
  const double fraction =
      total_ == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_);
  std::string text = fmt::format("{:3.0f} %, {} of {}", std::min(1.0, fraction) * 100,
                                 FormatSize(done), FormatSize(total_));
  if (seconds <= 0 || done <= first_) return text;
  const double rate = static_cast<double>(done - first_) / seconds;
  text += fmt::format(", {}/s", FormatSize(static_cast<uint64_t>(rate)));
  if (done < total_) text += ", " + Remaining(static_cast<double>(total_ - done) / rate);
  return text;
}

void Progress::Clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace moewe
