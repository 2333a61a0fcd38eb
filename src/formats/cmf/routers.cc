#include "formats/cmf/routers.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

// Takes `prefix` and the number behind it off the front of *text.
std::optional<uint32_t> TakeNumbered(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return std::nullopt;
  const std::string_view rest = text->substr(prefix.size());
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(prefix.size() + static_cast<size_t>(end - rest.data()));
  return number;
}

struct Layer {
  const DirectoryRecord* router = nullptr;
  std::set<uint32_t> experts;
};

}  // namespace

void CheckRouters(const std::vector<DirectoryRecord>& records, const std::string& path,
                  DirectoryFault on_fault) {
  std::map<uint32_t, Layer> layers;
  for (const DirectoryRecord& record : records) {
    std::string_view name = record.name;
    const std::optional<uint32_t> number = TakeNumbered(&name, "model.layers.");
    if (!number) continue;
    if (name == ".mlp.gate.weight" && record.shape.size() == 2) {
      layers[*number].router = &record;
    } else if (const auto expert = TakeNumbered(&name, ".mlp.experts.")) {
      layers[*number].experts.insert(*expert);
    }
  }
  for (const auto& [number, layer] : layers) {
    if (layer.router == nullptr || layer.experts.empty()) continue;
    const uint64_t rows = layer.router->shape[0];
    const uint64_t numbers = uint64_t{*layer.experts.rbegin()} + 1;
    if (layer.experts.size() == rows && numbers == rows) continue;
    on_fault(
        Error(ErrorCode::kParse,
              fmt::format("the router has {} rows, but the layer has {} experts numbered up to "
                          "{}",
                          rows, layer.experts.size(), numbers - 1),
              {path, fmt::format("tensor '{}'", layer.router->name)}));
  }
}

}  // namespace moewe::formats::cmf
