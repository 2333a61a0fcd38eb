#include "formats/cmf/skills.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "base/base64.h"
#include "base/f16.h"
#include "base/utf8.h"
#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

// A subspace has far fewer directions; bounds what a basis may ask to be decoded.
constexpr uint64_t kLargestRank = 65536;

class RecordParser {
 public:
  RecordParser(const Json& json, size_t index, const SkillLimits& limits, const std::string& path)
      : json_(json), field_(fmt::format("skills[{}]", index)), limits_(limits), path_(path) {}

  SkillRecord Parse() {
    if (!json_.is_object()) Fail("", "is no object");
    SkillRecord record;
    record.json = json_;
    record.id = Text(json_, "id", "");
    CheckId(record.id);
    record.name = Text(json_, "name", "");
    ReadLayers(&record.layers);
    if (const Json& selection = Get(json_, "selection"); !selection.is_null()) {
      record.selection = ReadSelection(selection);
    }
    record.input_mask_task = Text(json_, "input_mask_task", "");
    record.quality = Get(json_, "quality");
    if (!record.quality.is_null() && !record.quality.is_object()) Fail("quality", "is no object");
    record.base_dir_hash = Text(json_, "base_dir_hash", "");
    if (!Get(json_, "base_dir_hash").is_null() && !IsHash(record.base_dir_hash)) {
      Fail("base_dir_hash", "is not 16 lower-case hex digits");
    }
    record.base_arch = Text(json_, "base_arch", "");
    record.task = Text(json_, "task", "");
    return record;
  }

 private:
  [[noreturn]] void Fail(const std::string& key, const std::string& problem) const {
    const std::string name = key.empty() ? field_ : field_ + "." + key;
    throw Error(ErrorCode::kParse, fmt::format("header field '{}' {}", name, problem),
                {path_, "header." + name});
  }

  static const Json& Get(const Json& object, const char* key) {
    static const Json kNull;
    const auto it = object.find(key);
    return it == object.end() ? kNull : *it;
  }

  std::string Text(const Json& object, const char* key, const std::string& prefix) const {
    const Json& value = Get(object, key);
    if (value.is_null()) return {};
    if (!value.is_string()) Fail(prefix + key, "is no string");
    return value.get<std::string>();
  }

  void CheckId(const std::string& id) const {
    if (id.empty()) Fail("id", "is required and a string that is not empty");
    const bool control = std::any_of(id.begin(), id.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    if (control || !IsUtf8(id)) Fail("id", "has characters that no id may have");
  }

  static bool IsHash(std::string_view text) {
    return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos;
  }

  uint32_t Layer(const Json& value, const std::string& key) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= limits_.num_layers) {
      Fail(key, fmt::format("is no layer of the {} that there are", limits_.num_layers));
    }
    return value.get<uint32_t>();
  }

  void ReadLayers(std::vector<uint32_t>* layers) const {
    const Json& list = Get(json_, "layers");
    if (list.is_null()) return;
    if (!list.is_array()) Fail("layers", "is no list");
    for (size_t i = 0; i < list.size(); ++i) {
      layers->push_back(Layer(list[i], fmt::format("layers[{}]", i)));
    }
  }

  SkillSelection ReadSelection(const Json& json) const {
    if (!json.is_object()) Fail("selection", "is no object");
    SkillSelection selection;
    if (!Get(json, "metric").is_null()) selection.metric = Text(json, "metric", "selection.");
    selection.phi_layer = Layer(Get(json, "phi_layer"), "selection.phi_layer");
    selection.mean = Halves(json, "mean");
    if (selection.mean.size() != limits_.hidden_size) {
      Fail("selection.mean", fmt::format("has {} values, hidden_size is {}", selection.mean.size(),
                                         limits_.hidden_size));
    }
    selection.basis = Halves(json, "basis");
    const uint64_t hidden = std::max<uint64_t>(limits_.hidden_size, 1);
    uint64_t rank = selection.basis.size() / hidden;
    if (const Json& given = Get(json, "rank"); !given.is_null()) {
      if (!given.is_number_unsigned() || given.get<uint64_t>() > kLargestRank) {
        Fail("selection.rank", fmt::format("is no integer from 0 to {}", kLargestRank));
      }
      rank = given.get<uint64_t>();
    }
    if (rank > kLargestRank || selection.basis.size() != rank * hidden) {
      Fail("selection.basis", fmt::format("has {} values, not the {} x {} of rank and hidden_size",
                                          selection.basis.size(), rank, hidden));
    }
    selection.rank = static_cast<uint32_t>(rank);
    return selection;
  }

  std::vector<float> Halves(const Json& selection, const char* key) const {
    const std::string field = std::string("selection.") + key;
    const Json& value = Get(selection, key);
    if (!value.is_string()) Fail(field, "is required and a base64 string");
    const auto bytes = Base64Decode(value.get_ref<const std::string&>());
    if (!bytes || bytes->size() % 2 != 0) Fail(field, "is no base64 of f16 values");
    std::vector<float> values(bytes->size() / 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const unsigned low = (*bytes)[2 * i];
      const unsigned high = (*bytes)[2 * i + 1];
      values[i] = F16ToF32(static_cast<uint16_t>(low | high << 8));
      if (!std::isfinite(values[i])) Fail(field, "has a value that is no number");
    }
    return values;
  }

  const Json& json_;
  const std::string field_;
  const SkillLimits& limits_;
  const std::string& path_;
};

std::string HalvesToBase64(std::span<const float> values) {
  std::vector<uint8_t> bytes;
  bytes.reserve(2 * values.size());
  for (const float value : values) {
    const uint16_t half = F32ToF16(value);
    bytes.push_back(static_cast<uint8_t>(half));
    bytes.push_back(static_cast<uint8_t>(half >> 8));
  }
  return Base64Encode(bytes);
}

}  // namespace

std::vector<SkillRecord> ParseSkills(const Json& list, const SkillLimits& limits,
                                     const std::string& path) {
  std::vector<SkillRecord> records;
  if (list.is_null()) return records;
  if (!list.is_array()) {
    throw Error(ErrorCode::kParse, "header field 'skills' is no list", {path, "header.skills"});
  }
  std::unordered_set<std::string> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    records.push_back(RecordParser(list[i], i, limits, path).Parse());
    if (!ids.insert(records.back().id).second) {
      throw Error(ErrorCode::kParse, fmt::format("the skill '{}' appears twice", records.back().id),
                  {path, fmt::format("header.skills[{}].id", i)});
    }
  }
  return records;
}

Json SkillToJson(const SkillRecord& record) {
  Json json = Json::object();
  const auto put_text = [&](const char* key, const std::string& text) {
    if (!text.empty()) json[key] = text;
  };
  json["id"] = record.id;
  put_text("name", record.name);
  json["layers"] = record.layers;
  if (record.selection) {
    const SkillSelection& selection = *record.selection;
    json["selection"] = {{"metric", selection.metric},
                         {"phi_layer", selection.phi_layer},
                         {"rank", selection.rank},
                         {"mean", HalvesToBase64(selection.mean)},
                         {"basis", HalvesToBase64(selection.basis)}};
  }
  put_text("input_mask_task", record.input_mask_task);
  json["quality"] = record.quality;
  put_text("base_dir_hash", record.base_dir_hash);
  put_text("base_arch", record.base_arch);
  put_text("task", record.task);
  static constexpr auto kKnown =
      std::to_array<std::string_view>({"id", "name", "layers", "selection", "input_mask_task",
                                       "quality", "base_dir_hash", "base_arch", "task"});
  if (!record.json.is_object()) return json;
  for (auto it = record.json.begin(); it != record.json.end(); ++it) {
    if (std::find(kKnown.begin(), kKnown.end(), it.key()) == kKnown.end()) json[it.key()] = *it;
  }
  return json;
}

std::string SkillNames(std::span<const SkillRecord> skills) {
  std::string names;
  for (const SkillRecord& skill : skills) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", skill.id);
  }
  return names.empty() ? "none" : names;
}

const SkillRecord* FindSkill(std::span<const SkillRecord> skills, std::string_view id) {
  const auto found = std::find_if(skills.begin(), skills.end(),
                                  [&](const SkillRecord& skill) { return skill.id == id; });
  return found == skills.end() ? nullptr : &*found;
}

std::string SkillTensorName(std::string_view id, std::string_view tensor) {
  return fmt::format("{}{}.{}", kSkillPrefix, id, tensor);
}

std::optional<SkillTensor> SkillOfTensor(std::span<const SkillRecord> skills, std::string_view name,
                                         FunctionRef<bool(std::string_view tensor)> is_backbone) {
  if (!name.starts_with(kSkillPrefix)) return std::nullopt;
  name.remove_prefix(kSkillPrefix.size());
  std::optional<SkillTensor> best;
  bool best_is_backbone = false;
  for (const SkillRecord& skill : skills) {
    const std::string& id = skill.id;
    if (name.size() <= id.size() + 1 || !name.starts_with(id) || name[id.size()] != '.') continue;
    const std::string_view rest = name.substr(id.size() + 1);
    const bool backbone = is_backbone(rest);
    const bool better =
        !best || (backbone != best_is_backbone ? backbone : id.size() > best->skill->id.size());
    if (!better) continue;
    best = SkillTensor{&skill, rest};
    best_is_backbone = backbone;
  }
  return best;
}

}  // namespace moewe::formats::cmf
