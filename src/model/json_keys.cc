#include "model/json_keys.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace moewe::model {
namespace {

// The value as messages show it: never longer than a line.
std::string Shown(const JsonKeys::Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', false, JsonKeys::Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

}  // namespace

JsonKeys::JsonKeys(const Json& json, std::string file, std::string path)
    : json_(&json),
      file_(std::move(file)),
      path_(std::move(path)),
      asked_(std::make_shared<std::set<std::string, std::less<>>>()) {
  if (!json.is_object()) {
    throw Error(ErrorCode::kParse, fmt::format("{} is not an object", path_), {file_, path_});
  }
}

void JsonKeys::Accept(std::initializer_list<std::string_view> keys) const {
  for (std::string_view key : keys) asked_->insert(PathOf(key));
}

bool JsonKeys::AnyAsked() const {
  const std::string prefix = PathOf("");
  const auto first = asked_->lower_bound(prefix);
  return first != asked_->end() && first->starts_with(prefix);
}

const JsonKeys::Json* JsonKeys::Find(std::string_view key) const {
  Accept({key});
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonKeys::IsNull(std::string_view key) const {
  Accept({key});
  const auto it = json_->find(key);
  return it != json_->end() && it->is_null();
}

std::string_view JsonKeys::OneOf(std::initializer_list<std::string_view> keys) const {
  std::string_view found;
  for (std::string_view key : keys) {
    const Json* value = Find(key);
    if (value == nullptr) continue;
    if (found.empty()) {
      found = key;
    } else if (*value != *Find(found)) {
      Fail(key, fmt::format("disagrees with {}", found));
    }
  }
  return found;
}

uint32_t JsonKeys::Uint(std::string_view key, uint32_t low, uint32_t high,
                        std::optional<uint32_t> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) {
    if (!fallback) Fail(key, "is missing");
    return *fallback;
  }
  if (!value->is_number_integer())
    Fail(key, fmt::format("must be an integer, is {}", Shown(*value)));
  // Negative values are stored signed, everything from 0 on compares as unsigned.
  const bool negative = !value->is_number_unsigned() && value->get<int64_t>() < 0;
  const uint64_t number = negative ? 0 : value->get<uint64_t>();
  if (negative || number < low || number > high) {
    Fail(key, fmt::format("must be from {} to {}, is {}", low, high, Shown(*value)));
  }
  return static_cast<uint32_t>(number);
}

double JsonKeys::Number(std::string_view key, double low, double high,
                        std::optional<double> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) {
    if (!fallback) Fail(key, "is missing");
    return *fallback;
  }
  if (!value->is_number()) Fail(key, fmt::format("must be a number, is {}", Shown(*value)));
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < low || number > high) {
    Fail(key, fmt::format("must be from {} to {}, is {}", low, high, Shown(*value)));
  }
  return number;
}

bool JsonKeys::Bool(std::string_view key, std::optional<bool> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) {
    if (!fallback) Fail(key, "is missing");
    return *fallback;
  }
  if (!value->is_boolean()) Fail(key, fmt::format("must be true or false, is {}", Shown(*value)));
  return value->get<bool>();
}

std::string JsonKeys::String(std::string_view key, std::optional<std::string> fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) {
    if (!fallback) Fail(key, "is missing");
    return *fallback;
  }
  if (!value->is_string()) Fail(key, fmt::format("must be a string, is {}", Shown(*value)));
  return value->get<std::string>();
}

std::vector<double> JsonKeys::Numbers(std::string_view key, size_t count, double low,
                                      double high) const {
  const Json* list = Find(key);
  if (list == nullptr) Fail(key, "is missing");
  if (!list->is_array() || list->size() != count) {
    Fail(key, fmt::format("must be a list of {} numbers, is {} of {}", count, Shown(*list),
                          list->size()));
  }
  std::vector<double> numbers;
  for (const Json& element : *list) {
    const double number = element.is_number() ? element.get<double>() : std::nan("");
    if (!std::isfinite(number) || number < low || number > high) {
      Fail(key,
           fmt::format("must hold numbers from {} to {}, holds {}", low, high, Shown(element)));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<uint32_t> JsonKeys::Uints(std::string_view key, size_t count, uint32_t low,
                                      uint32_t high) const {
  std::vector<uint32_t> integers;
  for (const double number : Numbers(key, count, low, high)) {
    if (number != std::floor(number))
      Fail(key, fmt::format("must hold integers, holds {}", number));
    integers.push_back(static_cast<uint32_t>(number));
  }
  return integers;
}

std::vector<std::string> JsonKeys::Strings(std::string_view key, size_t count) const {
  const Json* list = Find(key);
  if (list == nullptr) Fail(key, "is missing");
  if (!list->is_array() || list->size() != count) {
    Fail(key, fmt::format("must be a list of {} strings, is {} of {}", count, Shown(*list),
                          list->size()));
  }
  std::vector<std::string> strings;
  for (const Json& element : *list) {
    if (!element.is_string()) Fail(key, fmt::format("must hold strings, holds {}", Shown(element)));
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

std::optional<JsonKeys> JsonKeys::Object(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) Fail(key, fmt::format("must be an object, is {}", Shown(*value)));
  JsonKeys inner(*value, file_, PathOf(key));
  inner.asked_ = asked_;
  return inner;
}

void JsonKeys::Fail(std::string_view key, const std::string& problem, ErrorCode code) const {
  throw Error(code, fmt::format("{} {}", key, problem), {file_, PathOf(key)});
}

double ShortestDecimal(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double decimal = 0.0;
  std::from_chars(text, end, decimal);
  return decimal;
}

}  // namespace moewe::model
