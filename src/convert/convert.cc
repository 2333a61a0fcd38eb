#include "convert/convert.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "convert/dtype_choice.h"
#include "convert/encode.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/writer.h"
#include "model/canonical.h"
#include "model/config.h"

namespace moewe::convert {
namespace {

using formats::TensorView;

// The number after `prefix` in `name`, and what follows it; nothing if there is none.
std::optional<std::pair<uint32_t, std::string_view>> NumberAfter(std::string_view name,
                                                                 std::string_view prefix) {
  const size_t at = name.find(prefix);
  if (at == std::string_view::npos) return std::nullopt;
  name.remove_prefix(at + prefix.size());
  uint32_t number = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (problem != std::errc()) return std::nullopt;
  return std::pair{number, name.substr(static_cast<size_t>(end - name.data()))};
}

// part of the file, layer, role of an expert's matrix (0 = none), expert.
std::tuple<int, uint32_t, int, uint32_t> OrderKey(std::string_view name) {
  if (name.starts_with("model.embed_tokens")) return {0, 0, 0, 0};
  if (name.starts_with("model.norm.")) return {2, 0, 0, 0};
  if (name.starts_with("lm_head")) return {3, 0, 0, 0};
  if (!name.starts_with("model.layers.")) return {4, 0, 0, 0};
  const auto layer = NumberAfter(name, "model.layers.");
  if (!layer) return {4, 0, 0, 0};
  const auto expert = NumberAfter(name, ".mlp.experts.");
  if (!expert) return {1, layer->first, 0, 0};
  const int role = expert->second.starts_with(".gate_proj") ? 1
                   : expert->second.starts_with(".up_proj") ? 2
                                                            : 3;
  return {1, layer->first, role, expert->first};
}

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
    plan.header.erase("shard");  // a set becomes one file
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

DType DTypeFor(const TensorView& tensor, const ConvertOptions& options, bool from_cmf) {
  if (tensor.name.starts_with("skill.")) return tensor.dtype;
  for (const auto& [glob, dtype] : options.tensor_rules) {
    if (!GlobMatches(glob, tensor.name)) continue;
    if (!quant::FindCodec(dtype)->holds(tensor.matrix(), tensor.shape.size())) {
      throw Error(ErrorCode::kUsage,
                  std::string(DTypeName(dtype)) + " cannot hold the shape of this tensor",
                  {"", tensor.name, {}});
    }
    return dtype;
  }
  if (from_cmf && !options.quant) return tensor.dtype;
  return ChooseDType(tensor, options.quant.value_or(DType::kQ8Row));
}

}  // namespace

ConvertResult ConvertToCmf(const formats::Checkpoint& source, const std::string& dst,
                           const ConvertOptions& options, ThreadPool& pool) {
  ConvertResult result;
  const bool from_cmf = source.kind() == formats::CheckpointKind::kCmf;
  std::vector<TensorView> tensors;
  std::optional<model::ModelConfig> config;
  if (from_cmf) {
    tensors = source.tensors();
  } else {
    config = model::ReadConfig(source);
    tensors = model::CanonicalTensors(source, *config, &result.warnings);
    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
      return OrderKey(a.name) < OrderKey(b.name);
    });
  }
  formats::CmfPlan plan = PlanContainer(source, config, options.quant);
  for (const std::string& file : source.files()) plan.source_id += file + "\n";
  for (const TensorView& tensor : tensors) {
    const DType dtype = DTypeFor(tensor, options, from_cmf);
    const bool copied = dtype == tensor.dtype;
    plan.tensors.push_back(
        {tensor.name, dtype, tensor.shape,
         copied ? tensor.bytes.size() : quant::FindCodec(dtype)->encoded_size(tensor.matrix())});
    plan.source_id +=
        std::to_string(tensor.file_offset) + "+" + std::to_string(tensor.bytes.size()) + " ";
    result.elements += tensor.matrix().rows * tensor.matrix().cols;
    result.bytes += plan.tensors.back().nbytes.value_or(0);
    result.fallbacks += dtype == DType::kQ82f && options.quant && *options.quant != DType::kQ82f;
  }
  result.tensors = tensors.size();
  std::vector<DType> dtypes;
  for (const formats::CmfPlanEntry& entry : plan.tensors) dtypes.push_back(entry.dtype);
  const auto writer = formats::CmfWriter::Create(
      std::move(plan), dst, {.resume = options.resume, .keep_partial = options.keep_partial});
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!writer->done(i)) {
      if (dtypes[i] == tensors[i].dtype) {
        writer->Write(i, tensors[i].bytes);
      } else {
        writer->Write(i, EncodeTensor(tensors[i], dtypes[i], options.encode, pool));
      }
    }
    if (options.progress) options.progress(i + 1, tensors.size());
  }
  source.CheckReadable();  // before the file gets its name
  writer->Finish();
  return result;
}

}  // namespace moewe::convert
