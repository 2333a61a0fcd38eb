#include "convert/skill_graft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "convert/encode.h"
#include "formats/cmf/skills.h"
#include "model/canonical.h"
#include "model/config.h"
#include "model/name_parts.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::convert {
namespace {

using formats::TensorView;

// Values as they are stored somewhere.
struct Stored {
  DType dtype;
  Bytes bytes;
};

struct Squares {
  double difference = 0.0;  // of a - b
  double second = 0.0;      // of b
};

// Sums over all elements, block by block of rows, so that threads don't change them.
Squares Compare(const Stored& a, const Stored& b, quant::MatrixShape shape, ThreadPool& pool,
                const Where& where) {
  const quant::Codec* codec_a = quant::FindCodec(a.dtype);
  const quant::Codec* codec_b = quant::FindCodec(b.dtype);
  if (codec_a == nullptr || codec_b == nullptr) {
    throw Error(ErrorCode::kUnsupported, "cannot be decoded", where);
  }
  codec_a->validate(a.bytes, shape, where);
  codec_b->validate(b.bytes, shape, where);
  constexpr uint64_t kRows = 64;
  const size_t blocks = static_cast<size_t>((shape.rows + kRows - 1) / kRows);
  std::vector<Squares> sums(blocks);
  const auto size = static_cast<size_t>(std::min(kRows, shape.rows) * shape.cols);
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.num_threads()),
                                          std::vector<float>(2 * size));
  pool.Run(blocks, [&](size_t block, int worker) {
    float* first = buffers[static_cast<size_t>(worker)].data();
    float* second = first + size;
    const uint64_t begin = block * kRows;
    const uint64_t end = std::min(begin + kRows, shape.rows);
    codec_a->decode_rows(a.bytes, shape, begin, end, first);
    codec_b->decode_rows(b.bytes, shape, begin, end, second);
    Squares sum;
    for (size_t i = 0; i < (end - begin) * shape.cols; ++i) {
      const double difference = double{first[i]} - double{second[i]};
      sum.difference += difference * difference;
      sum.second += double{second[i]} * double{second[i]};
    }
    sums[block] = sum;
  });
  Squares all;
  for (const Squares& sum : sums) {
    all.difference += sum.difference;
    all.second += sum.second;
  }
  return all;
}

std::optional<uint32_t> LayerOf(std::string_view name) {
  return model::EatNumbered(&name, "model.layers.");
}

// Drafts and opaque bytes are no part of what a skill replaces.
bool IsSkipped(const TensorView& tensor) {
  return tensor.name.starts_with("model.mtp.") || tensor.dtype == DType::kU8;
}

// As the backbone's tensor was encoded, as far as its bytes tell.
quant::EncodeOptions OptionsLike(const TensorView& tensor) {
  quant::EncodeOptions options;
  if (tensor.dtype == DType::kVbit || tensor.dtype == DType::kVbitRo) {
    options.row_bits = tensor.bytes.first(static_cast<size_t>(tensor.matrix().rows));
  }
  return options;
}

}  // namespace

std::vector<GraftCandidate> PairWithDonor(const formats::CmfFile& backbone,
                                          const formats::Checkpoint& donor,
                                          const std::optional<std::vector<uint32_t>>& layers) {
  const std::string& file = donor.files().front();
  const uint64_t num_layers = backbone.contents().header.num_layers;
  for (const uint32_t layer : layers.value_or(std::vector<uint32_t>())) {
    if (layer < num_layers) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("--layers names layer {}; the model has {}", layer, num_layers),
                {backbone.files().front(), ""});
  }
  std::unordered_map<std::string, TensorView> of_donor;
  for (TensorView& tensor : model::CanonicalTensors(donor, model::ReadConfig(donor))) {
    std::string name = tensor.name;
    of_donor.emplace(std::move(name), std::move(tensor));
  }
  const auto another = [&](const std::string& problem) {
    return Error(ErrorCode::kUsage, "the donor is no checkpoint of this base: " + problem,
                 {file, ""});
  };
  for (const auto& [name, tensor] : of_donor) {
    // A tied head may be stored all the same.
    if (backbone.Find(name) != nullptr || name == "lm_head.weight" || IsSkipped(tensor)) continue;
    throw another(fmt::format("the base has no '{}'", name));
  }
  std::vector<GraftCandidate> candidates;
  for (const TensorView& tensor : backbone.tensors()) {
    if (tensor.name.starts_with(formats::cmf::kSkillPrefix) || IsSkipped(tensor)) continue;
    const auto found = of_donor.find(tensor.name);
    if (found == of_donor.end()) throw another(fmt::format("it has no '{}'", tensor.name));
    if (found->second.shape != tensor.shape) {
      throw another(fmt::format("its '{}' is [{}], the base's [{}]", tensor.name,
                                fmt::join(found->second.shape, ", "),
                                fmt::join(tensor.shape, ", ")));
    }
    const std::optional<uint32_t> layer = LayerOf(tensor.name);
    if (layers && (!layer || std::find(layers->begin(), layers->end(), *layer) == layers->end())) {
      continue;
    }
    candidates.push_back({tensor, found->second, layer});
  }
  return candidates;
}

double RelativeChange(const GraftCandidate& candidate, double negligible, ThreadPool& pool,
                      const Where& where) {
  const TensorView& backbone = candidate.backbone;
  const TensorView& donor = candidate.donor;
  if (donor.dtype == backbone.dtype && donor.bytes.size() == backbone.bytes.size() &&
      std::equal(donor.bytes.begin(), donor.bytes.end(), backbone.bytes.begin())) {
    return 0.0;
  }
  const quant::MatrixShape shape = backbone.matrix();
  const Stored changed{donor.dtype, donor.bytes};
  const Squares whole = Compare(changed, {backbone.dtype, backbone.bytes}, shape, pool, where);
  if (!std::isfinite(whole.difference)) {
    throw Error(ErrorCode::kUnsupported, "holds values that are not finite", where);
  }
  if (whole.difference == 0.0) return 0.0;
  if (whole.second == 0.0) return std::numeric_limits<double>::infinity();
  const double upper = std::sqrt(whole.difference / whole.second);
  if (upper <= negligible || donor.dtype == backbone.dtype) return upper;
  const std::vector<uint8_t> encoded =
      EncodeTensor(donor, backbone.dtype, OptionsLike(backbone), pool, where);
  const Squares noise = Compare(changed, {backbone.dtype, encoded}, shape, pool, where);
  return std::sqrt(std::max(0.0, whole.difference - noise.difference) / whole.second);
}

}  // namespace moewe::convert
