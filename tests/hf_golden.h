// The golden folders of Hugging Face's models (tests/golden/hf): a checkpoint and what it computes.
#ifndef MOEWE_TESTS_HF_GOLDEN_H_
#define MOEWE_TESTS_HF_GOLDEN_H_

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden.h"

namespace moewe::golden {

struct HfGolden {
  explicit HfGolden(const std::string& family)
      : folder(Path("hf/" + family)),
        json(ReadJson(folder / "golden.json")),
        bytes(ReadBytes(folder / "golden.bin")) {}

  bool Has(const std::string& name) const { return json["arrays"].contains(name); }
  std::vector<float> Array(const std::string& name) const {
    const nlohmann::json& array = json["arrays"][name];
    size_t count = 1;
    for (const nlohmann::json& dim : array["shape"]) count *= dim.get<size_t>();
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes.data() + array["offset"].get<size_t>(), 4 * count);
    return values;
  }
  // Token ids of a prompt: "p1", "p9", "p70".
  std::vector<int32_t> Ids(const std::string& prompt) const {
    for (const nlohmann::json& entry : json["prompts"]) {
      if (entry["name"] == prompt) return entry["ids"].get<std::vector<int32_t>>();
    }
    return {};
  }

  std::filesystem::path folder;
  nlohmann::json json;
  std::vector<uint8_t> bytes;
};

// Names of the folders of tests/golden/hf, sorted.
inline std::vector<std::string> HfFamilies() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Path("hf"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace moewe::golden

#endif  // MOEWE_TESTS_HF_GOLDEN_H_
