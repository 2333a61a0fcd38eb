#include "moewe/error.h"

#include <fmt/format.h>

#include <utility>

namespace moewe {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kIo:
      return "Io";
    case ErrorCode::kNoSpace:
      return "NoSpace";
    case ErrorCode::kInternal:
      return "Internal";
    case ErrorCode::kUsage:
      return "Usage";
    case ErrorCode::kUnknownName:
      return "UnknownName";
    case ErrorCode::kInvalidMagic:
      return "InvalidMagic";
    case ErrorCode::kUnsupportedVersion:
      return "UnsupportedVersion";
    case ErrorCode::kUnsupportedFeature:
      return "UnsupportedFeature";
    case ErrorCode::kBounds:
      return "Bounds";
    case ErrorCode::kParse:
      return "Parse";
    case ErrorCode::kMissingTensor:
      return "MissingTensor";
    case ErrorCode::kHashMismatch:
      return "HashMismatch";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kOutOfBudget:
      return "OutOfBudget";
    case ErrorCode::kInterrupted:
      return "Interrupted";
  }
  return "Internal";
}

int ExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound:
    case ErrorCode::kIo:
    case ErrorCode::kNoSpace:
    case ErrorCode::kInternal:
      return 1;
    case ErrorCode::kUsage:
    case ErrorCode::kUnknownName:
      return 2;
    case ErrorCode::kInvalidMagic:
    case ErrorCode::kUnsupportedVersion:
    case ErrorCode::kUnsupportedFeature:
    case ErrorCode::kBounds:
    case ErrorCode::kParse:
    case ErrorCode::kMissingTensor:
    case ErrorCode::kHashMismatch:
    case ErrorCode::kUnsupported:
      return 3;
    case ErrorCode::kOutOfBudget:
      return 4;
    case ErrorCode::kInterrupted:
      return 130;
  }
  return 1;
}

std::string Where::ToString() const {
  std::string text = file;
  if (!field.empty()) text += (text.empty() ? "" : ": ") + field;
  if (offset) text += fmt::format("{}at offset {}", text.empty() ? "" : " ", *offset);
  return text;
}

Error::Error(ErrorCode code, std::string message, Where where)
    : code_(code), message_(std::move(message)), where_(std::move(where)) {
  what_ = fmt::format("{}: {}", ErrorCodeName(code_), message_);
  if (!where_.empty()) what_ += fmt::format(" ({})", where_.ToString());
}

}  // namespace moewe
