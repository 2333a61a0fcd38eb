// Reading tensor names such as "model.layers.3.mlp.experts.17.up_proj.weight" from the front.
#ifndef MOEWE_MODEL_NAME_PARTS_H_
#define MOEWE_MODEL_NAME_PARTS_H_

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace moewe::model {

// Takes `prefix` off the front of *text if it is there.
inline bool Eat(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Takes a decimal number off the front of *text.
inline std::optional<uint32_t> EatNumber(std::string_view* text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc()) return {};
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

// Takes `prefix` and the number behind it; takes nothing unless both are there.
inline std::optional<uint32_t> EatNumbered(std::string_view* text, std::string_view prefix) {
  std::string_view rest = *text;
  if (!Eat(&rest, prefix)) return {};
  const std::optional<uint32_t> number = EatNumber(&rest);
  if (number) *text = rest;
  return number;
}

}  // namespace moewe::model

#endif  // MOEWE_MODEL_NAME_PARTS_H_
