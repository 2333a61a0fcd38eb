// The one family of errors that moewe throws.
//
// Thrown by opening, converting and request validation: wherever an operation ends. Never used for
// control flow, never thrown inside kernels, never across the C border of text-bridge.
#ifndef MOEWE_ERROR_H_
#define MOEWE_ERROR_H_

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace moewe {

// The codes of the command-line contract (docs/cli.md). ExitCode() maps them to process exit codes.
enum class ErrorCode {
  kNotFound,            // a file or folder is not there
  kIo,                  // reading or writing failed
  kNoSpace,             // the disk is full
  kInternal,            // a failure while working that has no better name
  kUsage,               // the request or the command line is malformed
  kUnknownName,         // a task, skill, tensor or option value that does not exist
  kInvalidMagic,        // the bytes are no file of a kind we know
  kUnsupportedVersion,  // the format's version is not ours
  kUnsupportedFeature,  // a required-feature bit that we do not know
  kBounds,              // an offset or size points outside of its section or file
  kParse,               // a field's value is malformed
  kMissingTensor,       // the model needs a tensor that the file does not have
  kHashMismatch,        // bytes differ from their stored hash
  kUnsupported,         // valid, but not something that moewe can run or do
  kOutOfBudget,         // does not fit the memory budget
  kInterrupted,         // stopped by the user
};

// "InvalidMagic" for kInvalidMagic, and so on.
std::string_view ErrorCodeName(ErrorCode code);

// 1 for failures while working, 2 usage, 3 invalid file, 4 out of budget, 130 interrupted.
int ExitCode(ErrorCode code);

// Where in which file. Empty members are left out when printed.
struct Where {
  std::string file;                     // path as the user gave it
  std::string field;                    // e.g. "directory[12].nbytes", "header.arch.num_layers"
  std::optional<uint64_t> offset = {};  // byte offset in the file

  std::string ToString() const;  // "model.cmf: directory[12].nbytes at offset 1284"
  bool empty() const { return file.empty() && field.empty() && !offset; }
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, Where where = {});

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const Where& where() const { return where_; }

  // "Bounds: tensor ends past the data section (model.cmf: directory[12].nbytes at offset 1284)".
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
  Where where_;
  std::string what_;
};

}  // namespace moewe

#endif  // MOEWE_ERROR_H_
