// Any bytes as JSON: an error, or a value that another parser reads the same and that comes back
// from its own text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "moewe/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using moewe::Json;
  const moewe::Bytes bytes(data, size);
  Json value;
  try {
    value = moewe::ParseJson(bytes, "fuzz", "");
  } catch (const moewe::Error&) {
    try {
      moewe::ParseJson(bytes, "fuzz", "",
                       /*base_offset=*/1,
                       {.duplicate_keys = moewe::JsonOptions::DuplicateKeys::kLastWins});
    } catch (const moewe::Error&) {
    }
    return 0;
  }
  if (std::find(bytes.begin(), bytes.end(), uint8_t{0}) != bytes.end()) std::abort();
  if (Json::parse(bytes.begin(), bytes.end()) != value) std::abort();
  const std::string text = value.dump();
  const moewe::Bytes again(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  if (moewe::ParseJson(again, "fuzz", "") != value) std::abort();
  return 0;
}
