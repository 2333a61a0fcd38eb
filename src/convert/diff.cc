#include "convert/diff.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/hash64.h"
#include "formats/cmf/cmf_file.h"
#include "formats/made_bytes.h"
#include "model/canonical.h"
#include "model/config.h"
#include "platform/mapped_pages.h"

namespace moewe::convert {
namespace {

using formats::TensorView;
using Things = std::map<std::string, Json>;

// One side, taken apart into named things.
struct Side {
  Things header;
  Things tensors;
  Things masks;
  Things skills;
};

// Every value of nested objects under its path: {"a": {"b": 1}} gives "a.b".
void Flatten(const Json& value, const std::string& path, Things* out) {
  if (value.is_null()) return;  // in headers, null says no more than absence
  if (!value.is_object() || value.empty()) {
    (*out)[path] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) {
    Flatten(inner, path.empty() ? key : path + "." + key, out);
  }
}

std::string BitsHash(const formats::cmf::TaskMask& mask) {
  Hash64 hash;
  for (const auto* rows : {&mask.ffn_rows, &mask.head_rows, &mask.expert_rows}) {
    for (const Bytes row : *rows) hash.Update(row);
  }
  for (const bool gate : mask.layer_gates) {
    const uint8_t byte = gate ? 1 : 0;
    hash.Update({&byte, 1});
  }
  return HashToHex(hash.Digest());
}

Json DescribeTensor(const TensorView& tensor) {
  const formats::HeldBytes held(tensor);
  const uint64_t hash = tensor.hash != 0 ? tensor.hash : HashBytes(tensor.bytes);
  return {{"dtype", DTypeName(tensor.dtype)},
          {"shape", tensor.shape},
          {"nbytes", tensor.bytes.size()},
          {"hash", HashToHex(hash)}};
}

void AddMasks(const formats::CmfFile& file, Things* masks) {
  for (const formats::cmf::TaskMask& mask : file.contents().masks.masks) {
    Json description = {{"hash", BitsHash(mask)}};
    for (const auto& [key, value] : mask.meta.items()) {
      // Where it lies in the section says nothing about it.
      if (key != "blob_off" && key != "blob_len") description[key] = value;
    }
    (*masks)[mask.name] = std::move(description);
  }
}

Side Describe(const formats::Checkpoint& checkpoint) {
  Side side;
  Json header;
  std::vector<TensorView> tensors;
  if (const auto* file = dynamic_cast<const formats::CmfFile*>(&checkpoint)) {
    header = checkpoint.config();
    tensors = checkpoint.tensors();
    AddMasks(*file, &side.masks);
  } else {
    const model::ModelConfig config = model::ReadConfig(checkpoint);
    header = {{"format", "cmf"}, {"version", 2}, {"arch", model::ToCmfArch(config)}};
    if (!checkpoint.chat_bundle().is_null()) header["tokenizer_config"] = checkpoint.chat_bundle();
    tensors = model::CanonicalTensors(checkpoint, config);
  }
  if (header.contains("skills") && header["skills"].is_array()) {
    for (const Json& skill : header["skills"]) {
      const bool named = skill.is_object() && skill.contains("id") && skill["id"].is_string();
      side.skills[named ? skill["id"].get<std::string>() : skill.dump()] = skill;
    }
  }
  header.erase("skills");
  header.erase("section_hashes");
  Flatten(header, "", &side.header);
  for (const TensorView& tensor : tensors) {
    side.tensors[tensor.name] = DescribeTensor(tensor);
    ForgetPages(tensor.bytes);
  }
  checkpoint.CheckReadable();
  return side;
}

std::vector<Difference> Compare(const Things& a, const Things& b) {
  std::vector<Difference> differences;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      differences.push_back({name, value, nullptr});
    } else if (other->second != value) {
      differences.push_back({name, value, other->second});
    }
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name)) differences.push_back({name, nullptr, value});
  }
  return differences;
}

}  // namespace

DiffResult Diff(const formats::Checkpoint& a, const formats::Checkpoint& b) {
  const Side first = Describe(a);
  const Side second = Describe(b);
  DiffResult result;
  result.header = Compare(first.header, second.header);
  result.tensors = Compare(first.tensors, second.tensors);
  result.masks = Compare(first.masks, second.masks);
  result.skills = Compare(first.skills, second.skills);
  result.tokenizer = !std::ranges::equal(a.tokenizer_json(), b.tokenizer_json());
  result.same_tensors =
      first.tensors.size() -
      static_cast<uint64_t>(std::ranges::count_if(
          result.tensors, [](const Difference& difference) { return !difference.a.is_null(); }));
  return result;
}

}  // namespace moewe::convert
