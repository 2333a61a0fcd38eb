#include "convert/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/hash64.h"
#include "model/name_parts.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using Axis = Selection::Axis;

// What the name says behind "model.layers.N.mlp.".
enum class Role : uint8_t { kOther, kNeuronRows, kNeuronColumns, kExpertRows, kExpert };

Role RoleOf(std::string_view role) {
  if (role.ends_with("expert_bias") || role.ends_with("e_score_correction_bias")) {
    return Role::kExpertRows;
  }
  if (role.starts_with("experts.")) return Role::kExpert;
  if (role == "gate_proj.weight" || role == "up_proj.weight") return Role::kNeuronRows;
  if (role == "gate_proj.bias" || role == "up_proj.bias") return Role::kNeuronRows;
  if (role == "down_proj.weight") return Role::kNeuronColumns;
  if (role.starts_with("gate.")) return Role::kExpertRows;  // the router
  return Role::kOther;
}

const Kept* Find(const std::map<uint32_t, Kept>& by_layer, uint32_t layer) {
  const auto found = by_layer.find(layer);
  return found == by_layer.end() ? nullptr : &found->second;
}

// `kept` of the tensor's rows or columns; of a vector there are only columns.
Selection Select(const formats::TensorView& tensor, Axis axis, const Kept& kept,
                 const formats::Checkpoint& source) {
  const std::vector<uint64_t>& shape = tensor.shape;
  if (shape.size() == 1) axis = Axis::kColumns;
  const bool fits = axis == Axis::kRows ? shape.size() == 2 : !shape.empty();
  const uint64_t size = !fits ? 0 : axis == Axis::kRows ? shape.front() : shape.back();
  if (kept->back() >= size) {
    throw Error(ErrorCode::kParse,
                fmt::format("{} has the shape [{}] and cannot be cut to {} up to number {}",
                            tensor.name, fmt::join(shape, ", "), kept->size(), kept->back()),
                {source.files()[tensor.file_index], tensor.name, tensor.file_offset});
  }
  if (kept->size() == size) return {};
  return {axis, kept, false};
}

// A dead FFN keeps one neuron, whose output counts as zero: no tensor may be empty.
Selection SelectNeurons(const formats::TensorView& tensor, Axis axis, const Kept& kept,
                        const formats::Checkpoint& source) {
  static const Kept kFirst = std::make_shared<std::vector<uint32_t>>(1, 0u);
  if (!kept->empty()) return Select(tensor, axis, kept, source);
  if (axis == Axis::kRows) return Select(tensor, axis, kFirst, source);
  return {axis, kFirst, true};
}

}  // namespace

SkillName SplitSkillName(std::string_view name) {
  if (!name.starts_with("skill.")) return {{}, name};
  const size_t at = name.find(".model.layers.");
  if (at == std::string_view::npos) return {{}, name};
  return {name.substr(0, at + 1), name.substr(at + 1)};
}

CutTensor Cut::Apply(const formats::TensorView& tensor, const formats::Checkpoint& source) const {
  CutTensor result;
  result.name = tensor.name;
  std::string_view role = SplitSkillName(tensor.name).rest;
  const std::optional<uint32_t> layer = model::EatNumbered(&role, "model.layers.");
  if (!layer || !model::Eat(&role, ".mlp.")) return result;
  const Kept* live = Find(neurons, *layer);
  const Kept* kept = Find(experts, *layer);
  switch (RoleOf(role)) {
    case Role::kNeuronRows:
      if (live != nullptr) result.selection = SelectNeurons(tensor, Axis::kRows, *live, source);
      break;
    case Role::kNeuronColumns:
      if (live != nullptr) result.selection = SelectNeurons(tensor, Axis::kColumns, *live, source);
      break;
    case Role::kExpertRows:
      result.exact = true;
      if (kept != nullptr) result.selection = Select(tensor, Axis::kRows, *kept, source);
      break;
    case Role::kExpert: {
      const std::string_view before =
          std::string_view(tensor.name).substr(0, tensor.name.size() - role.size());
      model::Eat(&role, "experts.");
      const std::optional<uint32_t> expert = model::EatNumber(&role);
      if (!expert || kept == nullptr) break;
      const auto at = std::lower_bound((*kept)->begin(), (*kept)->end(), *expert);
      result.dropped = at == (*kept)->end() || *at != *expert;
      result.name = fmt::format("{}experts.{}{}", before, at - (*kept)->begin(), role);
      break;
    }
    case Role::kOther:
      break;
  }
  return result;
}

std::string Cut::Fingerprint() const {
  Hash64 hash;
  const auto add = [&hash](const char* what, const std::map<uint32_t, Kept>& by_layer) {
    for (const auto& [layer, kept] : by_layer) {
      const std::string line = fmt::format("{} {}: {}\n", what, layer, fmt::join(*kept, " "));
      hash.Update({reinterpret_cast<const uint8_t*>(line.data()), line.size()});
    }
  };
  add("neurons", neurons);
  add("experts", experts);
  return fmt::format("{:016x}", hash.Digest());
}

}  // namespace moewe::convert
