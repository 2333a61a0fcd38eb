#include "convert/skill_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash64.h"
#include "convert/destination.h"
#include "formats/cmf/skills.h"
#include "formats/cmf/writer.h"
#include "model/name_parts.h"
#include "model/weights.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using formats::CmfFile;
using formats::CmfPlan;
using formats::TensorView;
using formats::cmf::SkillRecord;

std::vector<uint8_t> Copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

void CheckOneFile(const CmfFile& file) {
  if (file.files().size() == 1 && !file.contents().header.shard) return;
  throw Error(ErrorCode::kUnsupported,
              "a standalone skill goes with a base in one file (moewe compact makes one of shards)",
              {file.files().front(), "header.shard"});
}

void CheckWholeModel(const CmfFile& file) {
  CheckOneFile(file);
  if (!file.contents().header.standalone_skill) return;
  throw Error(ErrorCode::kUnsupported, "is a standalone skill itself, no whole model",
              {file.files().front(), "header.skills"});
}

// The identity of a base: hash64 of its directory's bytes.
std::string DirectoryHash(const CmfFile& file) {
  return HashToHex(
      HashBytes(formats::cmf::SectionBytes(file.file_bytes(), file.contents().envelope.directory)));
}

bool SameTensor(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.bytes.size() == b.bytes.size() &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
}

// Without members that are null, which mean the same as absent ones.
Json WithoutNulls(const Json& object) {
  Json result = Json::object();
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null()) result[key] = value;
  }
  return result;
}

// The order of keys does not matter.
bool SameObject(const Json& a, const Json& b) {
  return nlohmann::json(WithoutNulls(a)) == nlohmann::json(WithoutNulls(b));
}

void TakeMasks(const CmfFile& from, CmfPlan* plan) {
  const formats::cmf::Envelope& envelope = from.contents().envelope;
  plan->masks = Copy(formats::cmf::SectionBytes(from.file_bytes(), envelope.masks));
  plan->index = Copy(formats::cmf::SectionBytes(from.file_bytes(), envelope.index));
}

// A tensor to be written, and the file that it comes from.
struct Source {
  const CmfFile* file;
  const TensorView* tensor;
};

void WriteFile(CmfPlan plan, const std::vector<Source>& sources, const std::string& dst) {
  for (const Source& source : sources) {
    const TensorView& tensor = *source.tensor;
    plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
  }
  const auto writer = formats::CmfWriter::Create(std::move(plan), dst);
  for (size_t i = 0; i < sources.size(); ++i) {
    model::VerifyTensor(*sources[i].file, *sources[i].tensor);
    writer->Write(i, sources[i].tensor->bytes);
  }
  for (const Source& source : sources) source.file->CheckReadable();
  writer->Finish();
}

class Exporter {
 public:
  Exporter(const CmfFile& specialist, const CmfFile& base, const SkillExportOptions& options)
      : specialist_(specialist), base_(base), options_(options) {}

  SkillFileResult Run(const std::string& dst) {
    CheckWholeModel(specialist_);
    CheckWholeModel(base_);
    CheckComparable();
    const std::vector<Source> sources = Changed();
    const formats::cmf::Header& header = specialist_.contents().header;
    CmfPlan plan;
    plan.header = header.json;
    for (const char* key : {"section_hashes", "shard", "shard_set"}) plan.header.erase(key);
    SkillRecord record;
    record.id = options_.id;
    record.name = options_.name;
    record.task = Task();
    record.base_dir_hash = DirectoryHash(base_);
    record.base_arch = header.json["arch"]["arch_name"];
    std::set<uint32_t> layers;
    for (const Source& source : sources) {
      std::string_view name = source.tensor->name;
      if (const auto layer = model::EatNumbered(&name, "model.layers.")) layers.insert(*layer);
    }
    record.layers.assign(layers.begin(), layers.end());
    const std::string& file = specialist_.files().front();
    record.json = {{"provenance",
                    {{"tool", "moewe skill export"},
                     {"version", MOEWE_VERSION},
                     {"cut_from", file.substr(file.find_last_of('/') + 1)},
                     {"tensors", sources.size()}}}};
    plan.header["skills"] = Json::array({formats::cmf::SkillToJson(record)});
    CheckRecord(plan.header);
    TakeMasks(specialist_, &plan);
    WriteFile(std::move(plan), sources, dst);
    SkillFileResult result{.tensors = sources.size(), .id = options_.id};
    for (const Source& source : sources) result.bytes += source.tensor->bytes.size();
    return result;
  }

 private:
  Where At(const char* field) const { return {specialist_.files().front(), field}; }

  void CheckComparable() const {
    const formats::cmf::Header& header = specialist_.contents().header;
    const formats::cmf::Header& base = base_.contents().header;
    if (!SameObject(header.json["arch"], base.json["arch"])) {
      throw Error(ErrorCode::kUsage,
                  "the arch is not the base's; a skill can only carry tensors and masks",
                  At("header.arch"));
    }
    for (const SkillRecord& skill : header.skills) {
      if (formats::cmf::FindSkill(base.skills, skill.id) != nullptr) continue;
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("the specialist has a skill '{}' of its own; remove it first", skill.id),
          At("header.skills"));
    }
  }

  std::vector<Source> Changed() const {
    std::vector<Source> changed;
    for (const TensorView& tensor : specialist_.tensors()) {
      const TensorView* in_base = base_.Find(tensor.name);
      if (in_base == nullptr || !SameTensor(tensor, *in_base)) {
        changed.push_back({&specialist_, &tensor});
      }
    }
    for (const TensorView& tensor : base_.tensors()) {
      if (specialist_.Find(tensor.name) != nullptr) continue;
      throw Error(ErrorCode::kUsage,
                  fmt::format("the specialist has no '{}', which the base has; a skill can't take "
                              "a tensor away",
                              tensor.name),
                  At("directory"));
    }
    const auto section = [](const CmfFile& file) {
      return formats::cmf::SectionBytes(file.file_bytes(), file.contents().envelope.masks);
    };
    if (changed.empty() && std::ranges::equal(section(specialist_), section(base_))) {
      throw Error(ErrorCode::kUsage, "the specialist is not different from the base", At(""));
    }
    return changed;
  }

  std::string Task() const {
    const formats::cmf::MaskCatalog& masks = specialist_.contents().masks;
    const std::string& wanted = options_.task.empty() ? masks.default_task : options_.task;
    const bool known = std::any_of(masks.masks.begin(), masks.masks.end(),
                                   [&](const auto& mask) { return mask.name == wanted; });
    if (known) return wanted;
    if (options_.task.empty()) return "";
    throw Error(ErrorCode::kUnknownName,
                fmt::format("there is no mask '{}': {}", wanted, formats::cmf::MaskNames(masks)),
                At("masks"));
  }

  void CheckRecord(const Json& header) const {
    try {
      formats::cmf::ParseSkills(header["skills"],
                                {header["arch"]["hidden_size"], header["arch"]["num_layers"]},
                                specialist_.files().front());
    } catch (const Error& error) {
      throw Error(ErrorCode::kUsage, "the skill can't be called that: " + error.message());
    }
  }

  const CmfFile& specialist_;
  const CmfFile& base_;
  const SkillExportOptions& options_;
};

// The records of a standalone skill, free of their base.
Json FreedRecords(const CmfFile& base, const CmfFile& skill, bool force,
                  const std::function<void(const std::string&)>& warning) {
  const std::string actual = DirectoryHash(base);
  Json freed = Json::array();
  size_t index = 0;
  for (const SkillRecord& record : skill.contents().header.skills) {
    const Where where{skill.files().front(), fmt::format("header.skills[{}].base_dir_hash", index)};
    ++index;
    if (!record.standalone()) continue;
    if (record.base_dir_hash != actual) {
      const std::string problem =
          fmt::format("the skill was cut against another base: directory hash {}, that of {} is {}",
                      record.base_dir_hash, base.files().front(), actual);
      if (!force) throw Error(ErrorCode::kParse, problem, where);
      warning(problem + "; applied all the same, which the format does not vouch for");
    }
    if (formats::cmf::FindSkill(base.contents().header.skills, record.id) != nullptr) {
      throw Error(ErrorCode::kUsage, fmt::format("the base has a skill '{}' already", record.id),
                  {base.files().front(), "header.skills"});
    }
    Json json = record.json;
    json.erase("base_dir_hash");
    freed.push_back(std::move(json));
  }
  return freed;
}

}  // namespace

SkillFileResult ExportSkill(const CmfFile& specialist, const CmfFile& base, const std::string& dst,
                            const SkillExportOptions& options) {
  CheckDestination(specialist, dst);
  CheckDestination(base, dst);
  return Exporter(specialist, base, options).Run(dst);
}

SkillFileResult ApplySkill(const CmfFile& base, const CmfFile& skill, const std::string& dst,
                           bool force, const std::function<void(const std::string&)>& warning) {
  CheckDestination(base, dst);
  CheckDestination(skill, dst);
  if (!skill.contents().header.standalone_skill) {
    throw Error(ErrorCode::kParse, "has no record of a standalone skill: it is no skill file",
                {skill.files().front(), "header.skills"});
  }
  CheckWholeModel(base);
  CheckOneFile(skill);
  const Json freed = FreedRecords(base, skill, force, warning);
  CmfPlan plan;
  plan.header = base.config();
  plan.header.erase("section_hashes");
  if (!plan.header.contains("skills") || !plan.header["skills"].is_array()) {
    plan.header["skills"] = Json::array();
  }
  for (const Json& record : freed) plan.header["skills"].push_back(record);
  TakeMasks(skill.contents().envelope.masks.present() ? skill : base, &plan);
  plan.tokenizer = Copy(base.tokenizer_json());
  std::vector<Source> sources;
  SkillFileResult result;
  result.id = freed[0]["id"];
  const auto take = [&](const TensorView& tensor) {
    sources.push_back({&skill, &tensor});
    ++result.tensors;
    result.bytes += tensor.bytes.size();
  };
  for (const TensorView& tensor : base.tensors()) {
    if (const TensorView* replacing = skill.Find(tensor.name)) {
      take(*replacing);
    } else {
      sources.push_back({&base, &tensor});
    }
  }
  for (const TensorView& tensor : skill.tensors()) {
    if (base.Find(tensor.name) == nullptr) take(tensor);
  }
  WriteFile(std::move(plan), sources, dst);
  return result;
}

}  // namespace moewe::convert
