// JSON from files that nobody vouches for.
//
// Stricter than a plain parse where a document could mean two things (a key given twice), limited
// in depth, linear in time, and with moewe's errors.
#ifndef MOEWE_BASE_JSON_H_
#define MOEWE_BASE_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "base/byte_reader.h"

namespace moewe {

using Json = nlohmann::ordered_json;

struct JsonOptions {
  enum class DuplicateKeys { kError, kLastWins } duplicate_keys = DuplicateKeys::kError;
  size_t max_depth = 256;
};

// The one value in `bytes`, keys in file order. Throws Error{kParse}: malformed JSON or UTF-8,
// bytes after the value, too deep, a duplicate key; where = {file, field, base_offset + position}.
Json ParseJson(Bytes bytes, const std::string& file, const std::string& field,
               uint64_t base_offset = 0, const JsonOptions& options = {});

}  // namespace moewe

#endif  // MOEWE_BASE_JSON_H_
