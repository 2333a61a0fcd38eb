// Any JSON as a config.json, as a CMF header and as its arch: an error or a model config that
// round-trips.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "moewe/error.h"

namespace {

using Json = nlohmann::ordered_json;

// What can be read can be written and read again, unless a header has no words for it.
void RoundTrip(const moewe::model::ModelConfig& config) {
  // By a family's default, which runs with all experts; a header must not state it.
  if (config.moe.top_k > config.moe.num_experts) return;
  Json arch;
  try {
    arch = ToCmfArch(config);
  } catch (const moewe::Error&) {
    return;
  }
  const Json header = Json::parse(Json{{"arch", arch}}.dump());
  if (!(moewe::model::ConfigFromCmfHeader(header, "again") == config)) std::abort();
}

template <typename Read>
void Try(Read read) {
  moewe::model::ModelConfig config;
  try {
    config = read();
  } catch (const moewe::Error&) {
    return;
  }
  RoundTrip(config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Json json = Json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  Try([&] { return moewe::model::ConfigFromHuggingFace(json, "fuzz"); });
  Try([&] { return moewe::model::ConfigFromCmfHeader(json, "fuzz"); });
  Try([&] { return moewe::model::ConfigFromCmfHeader({{"arch", json}}, "fuzz"); });
  return 0;
}
