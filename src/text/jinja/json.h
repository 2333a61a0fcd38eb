// JSON to values and back: json.dumps as the `tojson` filter of transformers calls it.
#ifndef MOEWE_TEXT_JINJA_JSON_H_
#define MOEWE_TEXT_JINJA_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

// Strings of the result (keys, too) are of message origin if `message`.
Value FromJson(const nlohmann::ordered_json& json, bool message);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Str> indent;  // of one level
  Str item_separator = Str(", ");
  Str key_separator = Str(": ");
};
Str ToJson(const Value& value, const JsonStyle& style);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_JSON_H_
