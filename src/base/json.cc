#include "base/json.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "moewe/error.h"

namespace moewe {
namespace {

// Objects with fewer keys are searched by scanning.
constexpr size_t kScanLimit = 24;

// Receives the parser's events and builds the value. Inserting into ordered_json by key scans all
// keys, which makes a big object quadratic; here keys go to the end and a set finds duplicates.
class Builder {
 public:
  Builder(const std::string& file, const std::string& field, uint64_t base,
          const JsonOptions& options)
      : file_(file), field_(field), base_(base), options_(options) {}

  Json Take() { return std::move(root_); }

  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(Json::number_integer_t value) { return Add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return Add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not part of JSON text

  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& value) {
    Level& level = levels_.back();
    auto& object = level.container->get_ref<Json::object_t&>();
    if (Contains(level, object, value)) {
      if (options_.duplicate_keys == JsonOptions::DuplicateKeys::kError) {
        Fail("key '" + value + "' appears twice", std::nullopt);
      }
      level.slot = &object.find(value)->second;
      return true;
    }
    if (!level.keys.empty()) level.keys.insert(value);
    object.emplace_back(std::move(value), nullptr);
    level.slot = &object.back().second;
    return true;
  }

  template <typename Exception>
  [[noreturn]] bool parse_error(size_t position, const std::string&, const Exception& error) {
    std::string_view message = error.what();
    // "[json.exception.parse_error.101] parse error at ...: text" -> "text"
    if (const size_t end = message.find("] "); end != message.npos) message.remove_prefix(end + 2);
    Fail(std::string(message), base_ + (position > 0 ? position - 1 : 0));
  }

 private:
  struct Level {
    Json* container;
    Json* slot = nullptr;                  // of the key read last
    std::unordered_set<std::string> keys;  // filled once an object is big
  };

  static bool Contains(Level& level, Json::object_t& object, const std::string& key) {
    if (object.size() < kScanLimit) return object.find(key) != object.end();
    if (level.keys.empty()) {
      for (const auto& item : object) level.keys.insert(item.first);
    }
    return level.keys.contains(key);
  }

  Json* Put(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      auto& array = level.container->get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *level.slot = std::move(value);
    return level.slot;
  }
  bool Add(Json value) {
    Put(std::move(value));
    return true;
  }
  bool Open(Json empty) {
    if (levels_.size() >= options_.max_depth) Fail("nested too deeply", std::nullopt);
    levels_.push_back({Put(std::move(empty)), nullptr, {}});
    return true;
  }
  bool Close() {
    levels_.pop_back();
    return true;
  }

  [[noreturn]] void Fail(const std::string& message, std::optional<uint64_t> offset) const {
    throw Error(ErrorCode::kParse, message, {file_, field_, offset});
  }

  const std::string& file_;
  const std::string& field_;
  uint64_t base_;
  const JsonOptions& options_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

Json ParseJson(Bytes bytes, const std::string& file, const std::string& field, uint64_t base_offset,
               const JsonOptions& options) {
  // To the library a zero byte is the end of the text, whatever comes behind it.
  if (const auto zero = std::find(bytes.begin(), bytes.end(), uint8_t{0}); zero != bytes.end()) {
    throw Error(ErrorCode::kParse, "a zero byte",
                {file, field, base_offset + static_cast<uint64_t>(zero - bytes.begin())});
  }
  Builder builder(file, field, base_offset, options);
  Json::sax_parse(bytes.begin(), bytes.end(), &builder);
  return builder.Take();
}

}  // namespace moewe
