#include "convert/convert.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "convert/destination.h"
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
  plan.header["quant_type"] = QuantTypeName(quant.value_or(DType::kQ8Row));
  std::string name = source.files().front();
  if (const size_t slash = name.find_last_of('/'); slash != std::string::npos) {
    name = name.substr(0, slash);  // the folder is what a model is called by
    name = name.substr(name.find_last_of('/') + 1);
  }
  plan.header["provenance"] = {
      {"tool", "moewe convert"}, {"version", MOEWE_VERSION}, {"source_model", name}};
  if (!source.chat_bundle().is_null()) plan.header["tokenizer_config"] = source.chat_bundle();
  return plan;
}

// What a run that is continued, or not, tells its user; empty if there is nothing to tell.
std::string ResumeNote(formats::CmfResume resumed, bool asked, size_t done, size_t total) {
  using formats::CmfResume;
  switch (resumed) {
    case CmfResume::kNothing:
      return asked ? "nothing to resume: starting from the beginning" : "";
    case CmfResume::kNotAsked:
      return "starting over; --resume would have continued the interrupted run";
    case CmfResume::kContinued:
      return fmt::format("resuming: {} of {} tensors are there", done, total);
    case CmfResume::kContinuedPart:
      return fmt::format("resuming: {} of {} tensors are there, damaged ones are written again",
                         done, total);
    case CmfResume::kOtherSource:
      return "the source is not the one of the interrupted run: starting over";
    case CmfResume::kOtherPlan:
      return "the options are not those of the interrupted run: starting over";
    case CmfResume::kDamaged:
      return "what the interrupted run left is damaged: starting over";
  }
  return "";
}

}  // namespace

ConvertResult ConvertToCmf(const formats::Checkpoint& source, const std::string& dst,
                           const ConvertOptions& options, ThreadPool& pool) {
  if (!options.shard_max) CheckDestination(source, dst);  // before the work of planning
  const ConvertPlan plan = PlanConversion(source, options.quant, options.tensor_rules);
  const auto note = [&](const std::string& line) {
    if (options.note && !line.empty()) options.note(line);
  };
  if (options.warning) {
    for (const std::string& warning : plan.warnings) options.warning(warning);
  }
  for (const std::string& line : plan.notes) note(line);

  formats::CmfPlan container = PlanContainer(source, plan.config, options.quant);
  container.source_id = SourceIdentity(source);
  container.encoding_id = fmt::format("moewe {}|{}", MOEWE_VERSION, Describe(options.encode));
  TensorEncoder encoder(source, plan, options.encode, pool);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.tensors[i];
    // A set of shards is divided before anything is written.
    const std::optional<uint64_t> nbytes = options.shard_max ? encoder.Size(i) : tensor.nbytes;
    container.tensors.push_back({tensor.source.name, tensor.dtype, tensor.source.shape, nbytes});
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
  note(ResumeNote(writer->resumed(), options.resume, done, writer->size()));
  WriteTensors(source, plan, *writer, encoder, options.progress);
  source.CheckReadable();  // before the file gets its name
  writer->Finish();
  return {.files = writer->paths(),
          .tensors = writer->size(),
          .elements = plan.elements,
          .bytes = writer->bytes_written(),
          .fallbacks = plan.fallbacks,
          .warnings = plan.warnings};
}

}  // namespace moewe::convert
