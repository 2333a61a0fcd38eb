#include "cli/text_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/size.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

FileDescriptor OpenUnlessStdin(const std::string& path) {
  return path == "-" ? FileDescriptor() : FileDescriptor::OpenForReading(path);
}

int NumberOf(const FileDescriptor& file) { return file.is_open() ? file.get() : STDIN_FILENO; }

std::string NameOf(const std::string& path) { return path == "-" ? "stdin" : path; }

}  // namespace

std::string ReadTextFile(const std::string& path) {
  const FileDescriptor file = OpenUnlessStdin(path);
  const int fd = NumberOf(file);
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (true) {
    if (!WaitForInput(fd, Interrupted())) throw Error(ErrorCode::kInterrupted, "stopped");
    const ssize_t n = read(fd, chunk.data(), chunk.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) ThrowErrno("cannot read", NameOf(path));
    if (n == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(n));
    if (text.size() > kLargestText) {
      throw Error(ErrorCode::kBounds,
                  fmt::format("the text is longer than the {} ({} bytes) that one may have",
                              FormatSize(kLargestText), kLargestText),
                  {NameOf(path), ""});
    }
  }
}

std::string ReadUtf8File(const std::string& path) {
  std::string text = ReadTextFile(path);
  RequireUtf8(text, {NameOf(path), ""});
  return text;
}

const std::string& CheckedText(const std::string& text, const char* flag) {
  RequireUtf8(text, {"", flag});
  return text;
}

TextLines::TextLines(const std::string& path)
    : file_(OpenUnlessStdin(path)), reader_(NumberOf(file_), &Interrupted(), NameOf(path)) {}

bool TextLines::Next(std::string* line) {
  while (true) {
    switch (reader_.Read(line)) {
      case LineReader::Event::kEnd:
        return false;
      case LineReader::Event::kInterrupt:
        throw Error(ErrorCode::kInterrupted, "stopped");
      case LineReader::Event::kLine:
        ++number_;
        if (line->find_first_not_of(" \t\r") != std::string::npos) return true;
        break;
    }
  }
}

}  // namespace moewe::cli
