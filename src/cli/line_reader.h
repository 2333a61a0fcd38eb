// Lines of a text that comes bit by bit: a conversation's, where Ctrl-C while waiting is an event
// and not the end, or those of a batch.
#ifndef MOEWE_CLI_LINE_READER_H_
#define MOEWE_CLI_LINE_READER_H_

#include <atomic>
#include <cstddef>
#include <string>

namespace moewe::cli {

class LineReader {
 public:
  enum class Event { kLine, kInterrupt, kEnd };

  // A line may have so many bytes.
  static constexpr size_t kLongestLine = size_t{64} << 20;

  // `interrupted` is what the handler of a signal sets; `name` is what errors call the text.
  LineReader(int fd, std::atomic<bool>* interrupted, std::string name)
      : fd_(fd), interrupted_(interrupted), name_(std::move(name)) {}

  // The next line without its newline. An interrupt discards what was typed of a line and clears
  // the flag. A last line without newline counts. Throws Error{kIo}, Error{kBounds} for a line that
  // is longer than kLongestLine.
  Event Read(std::string* line);

 private:
  Event Fill();  // kLine: there is more in the buffer, or the text has ended

  int fd_;
  std::atomic<bool>* interrupted_;
  std::string name_;
  std::string buffer_;
  size_t begin_ = 0;     // of what has not been given out
  size_t searched_ = 0;  // up to here there is no newline
  bool ended_ = false;
};

}  // namespace moewe::cli

#endif  // MOEWE_CLI_LINE_READER_H_
