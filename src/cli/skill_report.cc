#include "cli/skill_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shown.h"
#include "base/size.h"
#include "model/name_parts.h"
#include "model/skilled_checkpoint.h"

namespace moewe::cli {
namespace {

using formats::TensorView;
using formats::cmf::SkillRecord;

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

// The tensors that come with a skill: its own among others, or all of a file that is nothing else.
std::vector<const TensorView*> TensorsWith(const formats::CmfFile& file, const SkillRecord& skill) {
  if (!skill.standalone()) return model::TensorsOfSkill(file, skill.id);
  std::vector<const TensorView*> all;
  for (const TensorView& tensor : file.tensors()) all.push_back(&tensor);
  return all;
}

std::string_view ReplacedName(const TensorView& tensor, const SkillRecord& skill) {
  const std::string prefix = formats::cmf::SkillTensorName(skill.id, "");
  std::string_view name = tensor.name;
  model::Eat(&name, prefix);
  return name;
}

// "mlp.experts.17.up_proj.weight" as "mlp.experts.*.up_proj".
std::string Role(std::string_view name) {
  std::string role;
  if (name.ends_with(".weight")) name.remove_suffix(7);
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    const bool number = digit && (i == 0 || name[i - 1] == '.');
    if (!number) {
      role += name[i];
      continue;
    }
    while (i + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[i + 1])) != 0) ++i;
    role += '*';
  }
  return role;
}

void AddOnce(std::vector<std::string>* list, std::string text) {
  if (std::find(list->begin(), list->end(), text) == list->end()) list->push_back(std::move(text));
}

}  // namespace

Json SkillJson(const formats::CmfFile& file, const SkillRecord& skill) {
  Json json = {{"id", skill.id}, {"name", TextOrNull(skill.name)}, {"layers", skill.layers}};
  json["selection"] = nullptr;
  if (skill.selection) {
    json["selection"] = {{"metric", skill.selection->metric},
                         {"phi_layer", skill.selection->phi_layer},
                         {"rank", skill.selection->rank}};
  }
  json["input_mask_task"] = TextOrNull(skill.input_mask_task);
  json["quality"] = skill.quality;
  json["base_dir_hash"] = TextOrNull(skill.base_dir_hash);
  json["base_arch"] = TextOrNull(skill.base_arch);
  json["task"] = TextOrNull(skill.task);
  uint64_t bytes = 0;
  const std::vector<const TensorView*> tensors = TensorsWith(file, skill);
  for (const TensorView* tensor : tensors) bytes += tensor->bytes.size();
  json["tensors"] = tensors.size();
  json["bytes"] = bytes;
  return json;
}

Json SkillTensorList(const formats::CmfFile& file, const SkillRecord& skill) {
  Json list = Json::array();
  for (const TensorView* tensor : TensorsWith(file, skill)) {
    const std::string_view name = ReplacedName(*tensor, skill);
    Json entry = {{"name", name},
                  {"dtype", DTypeName(tensor->dtype)},
                  {"nbytes", tensor->bytes.size()},
                  {"backbone", nullptr}};
    const TensorView* backbone = skill.standalone() ? nullptr : file.Find(name);
    if (backbone != nullptr) {
      entry["backbone"] = {{"dtype", DTypeName(backbone->dtype)},
                           {"nbytes", backbone->bytes.size()}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string QualityText(const Json& quality) {
  if (!quality.is_object()) return "not measured";
  const auto number = [&](const char* key) {
    return quality.contains(key) && quality[key].is_number()
               ? std::optional<double>(quality[key].get<double>())
               : std::nullopt;
  };
  const std::optional<double> with = number("overlaid");
  const std::optional<double> without = number("backbone");
  if (!with || !without) return quality.dump(-1, ' ', false, Json::error_handler_t::replace);
  const bool named = quality.contains("metric") && quality["metric"].is_string();
  return fmt::format("{} {:.4g} with the skill, {:.4g} without",
                     named ? quality["metric"].get<std::string>() : "quality", *with, *without);
}

std::string SkillLine(const Json& skill) {
  std::string line = skill["id"].get<std::string>();
  if (skill["name"].is_string()) line += " · " + skill["name"].get<std::string>();
  line += fmt::format(" · {} tensors, {}", skill["tensors"].get<uint64_t>(),
                      FormatSize(skill["bytes"].get<uint64_t>()));
  const auto layers = skill["layers"].get<std::vector<uint32_t>>();
  if (!layers.empty()) line += fmt::format(" · layers {}", fmt::join(layers, ", "));
  const Json& selection = skill["selection"];
  line += selection.is_null() ? std::string(" · not routed")
                              : fmt::format(" · routed by layer {}, {} directions",
                                            selection["phi_layer"].get<uint32_t>(),
                                            selection["rank"].get<uint32_t>());
  if (skill["input_mask_task"].is_string()) {
    line += " · mask " + skill["input_mask_task"].get<std::string>();
  }
  line += " · " + QualityText(skill["quality"]);
  if (skill["base_dir_hash"].is_string()) {
    line += " · standalone, for the base " + skill["base_dir_hash"].get<std::string>();
  }
  return Shown(line);
}

void PrintSkillTensors(const Json& tensors) {
  struct Group {
    size_t count = 0;
    uint64_t bytes = 0, backbone_bytes = 0;
    std::vector<std::string> roles, dtypes;
  };
  std::map<int64_t, Group> groups;  // by layer; -1: of no layer
  for (const Json& tensor : tensors) {
    const std::string& full = tensor["name"].get_ref<const std::string&>();
    std::string_view name = full;
    const std::optional<uint32_t> layer = model::EatNumbered(&name, "model.layers.");
    if (layer) model::Eat(&name, ".");
    Group& group = groups[layer ? int64_t{*layer} : -1];
    ++group.count;
    group.bytes += tensor["nbytes"].get<uint64_t>();
    if (tensor["backbone"].is_object()) {
      group.backbone_bytes += tensor["backbone"]["nbytes"].get<uint64_t>();
    }
    AddOnce(&group.roles, Role(name));
    AddOnce(&group.dtypes, tensor["dtype"].get<std::string>());
  }
  for (const auto& [layer, group] : groups) {
    fmt::print("  {:<9} {:>4} tensors {:>10}",
               layer < 0 ? "elsewhere" : fmt::format("layer {}", layer), group.count,
               FormatSize(group.bytes));
    if (group.backbone_bytes != 0) {
      fmt::print(" for {} of the backbone", FormatSize(group.backbone_bytes));
    }
    fmt::print(" · {} · {}\n", fmt::join(group.dtypes, ", "),
               Shown(fmt::format("{}", fmt::join(group.roles, ", "))));
  }
}

Json EnergiesJson(std::span<const SkillEnergy> energies) {
  Json list = Json::array();
  for (const SkillEnergy& skill : energies) {
    list.push_back({{"id", skill.id}, {"E", skill.energy}, {"phi_layer", skill.phi_layer}});
  }
  return list;
}

}  // namespace moewe::cli
