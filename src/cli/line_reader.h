// Lines of standard input, for a conversation: Ctrl-C while waiting is an event, not the end.
#ifndef MOEWE_CLI_LINE_READER_H_
#define MOEWE_CLI_LINE_READER_H_

#include <atomic>
#include <string>

namespace moewe::cli {

class LineReader {
 public:
  enum class Event { kLine, kInterrupt, kEnd };

  // `interrupted` is what the SIGINT handler sets.
  LineReader(int fd, std::atomic<bool>* interrupted) : fd_(fd), interrupted_(interrupted) {}

  // The next line without its newline. An interrupt discards what was typed of a line and clears
  // the flag. A last line without newline counts. Throws Error{kIo}.
  Event Read(std::string* line);

 private:
  Event Fill();  // kLine: there is more in the buffer

  int fd_;
  std::atomic<bool>* interrupted_;
  std::string buffer_;
  bool ended_ = false;
};

}  // namespace moewe::cli

#endif  // MOEWE_CLI_LINE_READER_H_
