// Texts that users hand in, in files, through pipes and in flags: bounded, and Ctrl-C ends the wait
// for them.
#ifndef MOEWE_CLI_TEXT_INPUT_H_
#define MOEWE_CLI_TEXT_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "cli/line_reader.h"
#include "platform/file_io.h"

namespace moewe::cli {

// A text file may have so many bytes; a device or a pipe may have no end at all.
inline constexpr uint64_t kLargestText = uint64_t{256} << 20;

// A whole file as it is; "-" is stdin. Throws Error{kNotFound, kIo, kInterrupted}, Error{kBounds}
// if it is larger than kLargestText.
std::string ReadTextFile(const std::string& path);

// The same for what people write: Error{kUsage} with the offset of what is not UTF-8.
std::string ReadUtf8File(const std::string& path);

// The text of a flag. Throws Error{kUsage} naming the flag unless it is UTF-8.
const std::string& CheckedText(const std::string& text, const char* flag);

// Line by line, for texts of any length. Empty lines are left out.
class TextLines {
 public:
  // "-" is stdin. Throws Error{kNotFound, kIo}.
  explicit TextLines(const std::string& path);

  // False at the end. Throws Error{kIo, kBounds, kInterrupted}.
  bool Next(std::string* line);

  size_t number() const { return number_; }  // of the line that Next gave last, from 1

 private:
  FileDescriptor file_;
  LineReader reader_;
  size_t number_ = 0;
};

}  // namespace moewe::cli

#endif  // MOEWE_CLI_TEXT_INPUT_H_
