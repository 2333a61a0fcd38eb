// Typed, range-checked access to the keys of a JSON object from a file, with errors that name the
// key.
#ifndef MOEWE_MODEL_JSON_KEYS_H_
#define MOEWE_MODEL_JSON_KEYS_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "moewe/error.h"

namespace moewe::model {

// A view: the JSON must outlive it. A key whose value is null counts as absent unless said
// otherwise. It remembers, together with its copies and the objects inside of it, which keys were
// asked for, so that whoever has read everything can tell what nobody knows. One thread.
class JsonKeys {
 public:
  using Json = nlohmann::ordered_json;

  // `path` is what errors put before a key, e.g. "header.arch". Throws Error{kParse} if `json` is
  // no object.
  JsonKeys(const Json& json, std::string file, std::string path);

  const Json& json() const { return *json_; }
  const std::string& file() const { return file_; }
  const std::string& path() const { return path_; }

  // Says of keys that may be there that they are understood, though their value was not needed.
  void Accept(std::initializer_list<std::string_view> keys) const;
  // Whether a key was asked for or accepted.
  bool WasAsked(std::string_view key) const { return asked_->contains(PathOf(key)); }
  // Whether any key of this object was.
  bool AnyAsked() const;

  // Null if absent or null.
  const Json* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // True if the key is there with the value null.
  bool IsNull(std::string_view key) const;
  // The one of `keys` that is present: spellings of one value. Throws if two disagree. Empty if
  // none is.
  std::string_view OneOf(std::initializer_list<std::string_view> keys) const;

  // An integer in [low, high]; without a fallback the key is required.
  uint32_t Uint(std::string_view key, uint32_t low, uint32_t high,
                std::optional<uint32_t> fallback = {}) const;
  // A finite number in [low, high].
  double Number(std::string_view key, double low, double high,
                std::optional<double> fallback = {}) const;
  bool Bool(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string String(std::string_view key, std::optional<std::string> fallback = {}) const;
  // Numbers in [low, high]; the length must be `count`.
  std::vector<double> Numbers(std::string_view key, size_t count, double low, double high) const;
  std::vector<uint32_t> Uints(std::string_view key, size_t count, uint32_t low,
                              uint32_t high) const;
  std::vector<std::string> Strings(std::string_view key, size_t count) const;
  std::optional<JsonKeys> Object(std::string_view key) const;

  [[noreturn]] void Fail(std::string_view key, const std::string& problem,
                         ErrorCode code = ErrorCode::kParse) const;
  [[noreturn]] void Unsupported(std::string_view key, const std::string& problem) const {
    Fail(key, problem, ErrorCode::kUnsupported);
  }

 private:
  std::string PathOf(std::string_view key) const {
    return std::string(path_).append(".").append(key);
  }

  const Json* json_;
  std::string file_;
  std::string path_;
  std::shared_ptr<std::set<std::string, std::less<>>> asked_;  // paths
};

// The shortest decimal that rounds to `value` as f32, so that 1e-6f is written as 1e-06 and reads
// back the same.
double ShortestDecimal(float value);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_JSON_KEYS_H_
