#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "convert/cut_masks.h"
#include "convert/destination.h"
#include "convert/resume_note.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/shard_writer.h"
#include "formats/cmf/writer.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

std::string QuantTypeName(DType quant) {
  switch (quant) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBf16:
      return "BF16";
    case DType::kQ8Row:
      return "Q8_ROW";
    case DType::kQ82f:
      return "Q8_2F";
    case DType::kVbit:
    case DType::kVbitRo:
    case DType::kQ1:
    case DType::kQ1s:
    case DType::kQ1t:
      return "VBIT";
    default:
      return "Q4_BLOCK";
  }
}

std::vector<uint8_t> Copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// Header and sections; a CMF source's own are kept, for another the header is made from `config`.
formats::CmfPlan PlanContainer(const formats::Checkpoint& source,
                               const std::optional<model::ModelConfig>& config,
                               std::optional<DType> quant) {
  formats::CmfPlan plan;
  plan.tokenizer = Copy(source.tokenizer_json());
  if (const auto* cmf = dynamic_cast<const formats::CmfFile*>(&source)) {
    const formats::cmf::Envelope& envelope = cmf->contents().envelope;
    plan.header = source.config();
    plan.header.erase("section_hashes");
    plan.header.erase("shard");  // a set becomes one file, or is divided anew
    plan.header.erase("shard_set");
    plan.masks = Copy(formats::cmf::SectionBytes(cmf->file_bytes(), envelope.masks));
    plan.index = Copy(formats::cmf::SectionBytes(cmf->file_bytes(), envelope.index));
    if (quant) plan.header["quant_type"] = QuantTypeName(*quant);
    return plan;
  }
  plan.header["format"] = "cmf";
  plan.header["version"] = 2;
  plan.header["arch"] = model::ToCmfArch(config.value());
  const bool vault = source.kind() == formats::CheckpointKind::kSmoe;
  plan.header["quant_type"] = QuantTypeName(quant.value_or(vault ? DType::kF32 : DType::kQ8Row));
  std::string name = source.files().front();
  if (vault) {
    name = std::filesystem::path(name).stem().string();
  } else if (const size_t slash = name.find_last_of('/'); slash != std::string::npos) {
    name = name.substr(0, slash);  // the folder is what a model is called by
    name = name.substr(name.find_last_of('/') + 1);
  }
  plan.header["provenance"] = {
      {"tool", "moewe convert"}, {"version", MOEWE_VERSION}, {"source_model", name}};
  if (!source.chat_bundle().is_null()) plan.header["tokenizer_config"] = source.chat_bundle();
  return plan;
}

// Counts of a layer's experts and lists of its neurons are in the tensors; what the header says of
// both becomes nominal (sections 11 and 11.1).
class CutContainer {
 public:
  CutContainer(const formats::Checkpoint& source, PreparedConversion* prepared,
               formats::CmfPlan* container)
      : cmf_(dynamic_cast<const formats::CmfFile*>(&source)),
        prepared_(*prepared),
        container_(*container) {}

  void Apply() {
    AddProvenance();
    if (!prepared_.cut.neurons.empty()) {
      container_.header["arch"]["intermediate_size"] =
          prepared_.provenance.at("defrag").at("post_intermediate_max");
    }
    if (cmf_ == nullptr || cmf_->contents().masks.masks.empty()) return;
    std::vector<std::string> dropped;
    if (prepared_.drops_masks) {
      for (const auto& mask : cmf_->contents().masks.masks) dropped.push_back(mask.name);
      container_.masks.clear();
      container_.index.clear();
    } else {
      CutMasks masks = RenumberExperts(*cmf_, prepared_.cut);
      Note("masks now name the kept experts", masks.renumbered);
      container_.masks = std::move(masks.section);
      if (!masks.index_stays || container_.masks.empty()) container_.index.clear();
      dropped = std::move(masks.dropped);
    }
    Note("masks left out: they are of the uncut model", dropped);
    ReleaseSkills(dropped);
  }

 private:
  void Note(const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    prepared_.plan.notes.push_back(fmt::format("{}: {}", what, fmt::join(names, ", ")));
  }

  void AddProvenance() {
    Json& provenance = container_.header["provenance"];
    if (!provenance.is_object()) {  // free-form
      Json before = std::move(provenance);
      provenance = Json::object();
      if (!before.is_null()) provenance["source"] = std::move(before);
    }
    for (const auto& [key, block] : prepared_.provenance.items()) provenance[key] = block;
  }

  // A skill must not ask for a mask that is gone.
  void ReleaseSkills(const std::vector<std::string>& dropped) {
    if (!container_.header.contains("skills") || !container_.header["skills"].is_array()) return;
    for (Json& skill : container_.header["skills"]) {
      if (!skill.is_object()) continue;
      for (const char* key : {"input_mask_task", "task"}) {
        if (!skill.contains(key)) continue;
        Json& task = skill[key];
        const auto is_task = [&task](const std::string& name) { return task == name; };
        if (std::any_of(dropped.begin(), dropped.end(), is_task)) task = nullptr;
      }
    }
  }

  const formats::CmfFile* cmf_;
  PreparedConversion& prepared_;
  formats::CmfPlan& container_;
};

}  // namespace

PreparedConversion PrepareConversion(const formats::Checkpoint& source,
                                     const ConvertOptions& options, ThreadPool& pool) {
  PreparedConversion prepared;
  const auto* cmf = dynamic_cast<const formats::CmfFile*>(&source);
  const std::string& file = source.files().front();
  const bool cuts =
      !options.defrag_folder.empty() || !options.defrag_task.empty() || options.expert_cut;
  if (cuts && cmf != nullptr && cmf->contents().header.standalone_skill) {
    throw Error(ErrorCode::kUsage, "a standalone skill is no whole model to cut", {file, ""});
  }
  SourceTensors listed = ListSource(source);
  if (!options.defrag_folder.empty()) {
    prepared.folder = std::make_unique<DefragFolder>(source, options.defrag_folder);
    prepared.folder->Overlay(&listed.tensors);
    const uint64_t layers =
        listed.config ? listed.config->num_layers : cmf->contents().header.num_layers;
    prepared.cut.neurons = prepared.folder->LiveNeurons(listed.tensors, layers, pool);
    prepared.provenance["defrag"] =
        FfnProvenance(listed.tensors, prepared.cut, options.defrag_folder);
    prepared.drops_masks = true;
  } else if (!options.defrag_task.empty()) {
    if (cmf == nullptr) {
      throw Error(ErrorCode::kUsage, "only .cmf files have task masks", {file, "--defrag-task"});
    }
    prepared.cut = CutOfTask(*cmf, options.defrag_task);
    prepared.provenance = TaskProvenance(*cmf, prepared.cut, options.defrag_task);
    prepared.drops_masks = true;
  } else if (options.expert_cut) {
    prepared.cut.experts = options.expert_cut->kept;
    prepared.provenance["moe_defrag"] = options.expert_cut->provenance;
  }
  const formats::Checkpoint& weights =
      prepared.folder ? static_cast<const formats::Checkpoint&>(*prepared.folder) : source;
  prepared.plan =
      PlanConversion(weights, std::move(listed), options.quant, options.tensor_rules, prepared.cut);
  return prepared;
}

ConvertResult ConvertToCmf(const formats::Checkpoint& source, const std::string& dst,
                           const ConvertOptions& options, ThreadPool& pool) {
  if (!options.shard_max) CheckDestination(source, dst);  // before the work of planning
  PreparedConversion prepared = PrepareConversion(source, options, pool);
  ConvertPlan& plan = prepared.plan;
  const formats::Checkpoint& weights =
      prepared.folder ? static_cast<const formats::Checkpoint&>(*prepared.folder) : source;
  formats::CmfPlan container = PlanContainer(source, plan.config, options.quant);
  if (!prepared.provenance.empty()) CutContainer(source, &prepared, &container).Apply();
  const auto note = [&](const std::string& line) {
    if (options.note && !line.empty()) options.note(line);
  };
  if (options.warning) {
    for (const std::string& warning : plan.warnings) options.warning(warning);
  }
  for (const std::string& line : plan.notes) note(line);

  container.source_id = SourceIdentity(weights);
  container.encoding_id = fmt::format("moewe {}|{}", MOEWE_VERSION, Describe(options.encode));
  if (!prepared.cut.empty()) container.encoding_id += "|" + prepared.cut.Fingerprint();
  TensorEncoder encoder(weights, plan, options.encode, pool);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.tensors[i];
    // A set of shards is divided before anything is written.
    const std::optional<uint64_t> nbytes = options.shard_max ? encoder.Size(i) : tensor.nbytes;
    container.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, nbytes});
  }
  std::vector<formats::CmfPlan> files;
  if (options.shard_max) {
    files = formats::SplitPlan(std::move(container), *options.shard_max);
  } else {
    files.push_back(std::move(container));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    CheckDestination(source, formats::ShardPath(dst, i + 1, files.size()));
  }
  const auto writer = formats::CreateShardWriter(
      std::move(files), dst, {.resume = options.resume, .keep_partial = options.keep_partial});
  size_t done = 0;
  for (size_t i = 0; i < writer->size(); ++i) done += writer->done(i) ? 1 : 0;
  note(ResumeNote(writer->resumed(), options.resume, done, writer->size(), "tensors"));
  WriteTensors(weights, plan, *writer, encoder, options.progress);
  weights.CheckReadable();  // before the file gets its name
  writer->Finish();
  return {.files = writer->paths(),
          .tensors = writer->size(),
          .elements = plan.elements,
          .bytes = writer->bytes_written(),
          .fallbacks = plan.fallbacks,
          .warnings = plan.warnings};
}

}  // namespace moewe::convert
