#include "model/skill_router.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/checkpoint_view.h"
#include "model/kv_cache.h"
#include "model/name_parts.h"
#include "model/transformer.h"
#include "moewe/error.h"

namespace moewe::model {
namespace {

using formats::cmf::SkillRecord;

// The tensors of the first `count` layers, and those of no layer.
class FirstLayers : public CheckpointView {
 public:
  FirstLayers(std::shared_ptr<const formats::Checkpoint> base_checkpoint, uint32_t count)
      : CheckpointView(std::move(base_checkpoint)) {
    for (const formats::TensorView& tensor : base().tensors()) {
      std::string_view name = tensor.name;
      const std::optional<uint32_t> layer = EatNumbered(&name, "model.layers.");
      if (!layer || *layer < count) index_.Add(tensor);
    }
  }
};

ModelConfig ConfigOfFirstLayers(const formats::Checkpoint& checkpoint, uint32_t count) {
  RefuseStandaloneSkill(checkpoint);
  ModelConfig config = ReadConfig(checkpoint);
  if (count == 0 || count > config.num_layers) {
    throw Error(ErrorCode::kUsage, "the model has no such layer", {checkpoint.files().front(), ""});
  }
  config.num_layers = count;
  config.num_loops = 1;
  config.layers.resize(count);
  return config;
}

std::unique_ptr<Model> LoadFirstLayers(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                       uint32_t count, const LoadOptions& asked, ThreadPool* pool) {
  ModelConfig config = ConfigOfFirstLayers(*checkpoint, count);
  const auto first = std::make_shared<FirstLayers>(std::move(checkpoint), count);
  LoadOptions options;
  options.activations = kernels::Activations::kF32;
  options.verify = asked.verify;
  options.backbone_verified = asked.backbone_verified;
  options.stream = asked.stream;
  return Transformer::Load(first, std::move(config), TaskMask{}, options, pool);
}

uint32_t LayersToRun(const std::vector<uint32_t>& layers) {
  return layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end()) + 1;
}

class Summer : public ForwardObserver {
 public:
  Summer(const std::vector<uint32_t>& layers, size_t hidden)
      : layers_(layers), hidden_(hidden), sums(layers.size(), std::vector<double>(hidden)) {}

  void OnHidden(int layer, const float* data, size_t rows) override {
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layer < 0 || layers_[i] != static_cast<uint32_t>(layer)) continue;
      for (size_t r = 0; r < rows; ++r) {
        for (size_t k = 0; k < hidden_; ++k) sums[i][k] += double{data[r * hidden_ + k]};
      }
    }
  }

 private:
  const std::vector<uint32_t>& layers_;
  const size_t hidden_;

 public:
  std::vector<std::vector<double>> sums;  // [layers][hidden], in the order of positions
};

// Layers of the skills that can be routed to, each once.
std::vector<uint32_t> PhiLayers(const formats::Checkpoint& checkpoint) {
  std::vector<uint32_t> layers;
  const std::string& file = checkpoint.files().front();
  for (const SkillRecord& skill : SkillsOf(checkpoint)) {
    if (!skill.selection) continue;
    if (skill.selection->metric != "mse") {
      throw Error(ErrorCode::kUnsupported,
                  "skill '" + skill.id + "' is selected by metric '" + skill.selection->metric +
                      "', which is unknown",
                  {file, "header.skills"});
    }
    const uint32_t layer = skill.selection->phi_layer;
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) layers.push_back(layer);
  }
  if (layers.empty()) {
    throw Error(ErrorCode::kUnsupported,
                "no skill of the file can be chosen by a prompt: none has a selection; skills: " +
                    formats::cmf::SkillNames(SkillsOf(checkpoint)),
                {file, "--skill"});
  }
  return layers;
}

}  // namespace

ResidualReader::ResidualReader(std::shared_ptr<const formats::Checkpoint> checkpoint,
                               std::vector<uint32_t> layers, const LoadOptions& options,
                               ThreadPool* pool)
    : layers_(std::move(layers)),
      model_(LoadFirstLayers(std::move(checkpoint), LayersToRun(layers_), options, pool)) {}

std::vector<std::vector<double>> ResidualReader::Means(std::span<const TokenId> tokens,
                                                       uint32_t chunk) {
  if (tokens.empty()) throw Error(ErrorCode::kUsage, "there are no tokens to choose a skill by");
  const size_t step = std::max<size_t>(chunk, 1);
  KvPool pool(config(), KvType::kF32, BlocksFor(tokens.size()));
  Sequence sequence(&pool);
  Summer summer(layers_, config().hidden_size);
  std::vector<float> no_logits;
  for (size_t begin = 0; begin < tokens.size(); begin += step) {
    SequenceChunk part;
    part.sequence = &sequence;
    part.tokens = tokens.subspan(begin, std::min(step, tokens.size() - begin));
    part.logits = SequenceChunk::Logits::kNone;
    model_->Forward({&part, 1}, &no_logits, &summer);
  }
  for (std::vector<double>& sum : summer.sums) {
    for (double& value : sum) value /= static_cast<double>(tokens.size());
  }
  return std::move(summer.sums);
}

double EnergyOf(const formats::cmf::SkillSelection& selection, std::span<const double> phi) {
  const size_t hidden = phi.size();
  std::vector<double> r(hidden);
  double r_squared = 0.0;
  double phi_squared = 0.0;
  for (size_t k = 0; k < hidden; ++k) {
    r[k] = phi[k] - double{selection.mean[k]};
    r_squared += r[k] * r[k];
    phi_squared += phi[k] * phi[k];
  }
  double explained = 0.0;
  for (size_t b = 0; b < selection.rank; ++b) {
    double dot = 0.0;
    for (size_t k = 0; k < hidden; ++k) dot += double{selection.basis[b * hidden + k]} * r[k];
    explained += dot * dot;
  }
  return std::max(r_squared - explained, 0.0) / phi_squared;
}

SkillRouter::SkillRouter(std::shared_ptr<const formats::Checkpoint> checkpoint,
                         const LoadOptions& options, ThreadPool* pool)
    : checkpoint_(std::move(checkpoint)),
      layers_(PhiLayers(*checkpoint_)),
      reader_(checkpoint_, layers_, options, pool) {}

ModelOutline SkillRouter::OutlineFor(std::shared_ptr<const formats::Checkpoint> checkpoint) {
  const uint32_t count = LayersToRun(PhiLayers(*checkpoint));
  ModelConfig config = ConfigOfFirstLayers(*checkpoint, count);
  return {std::make_shared<FirstLayers>(std::move(checkpoint), count), std::move(config)};
}

std::vector<std::string> SkillRouter::IdsOf(const formats::Checkpoint& checkpoint) {
  std::vector<std::string> ids;
  for (const SkillRecord& skill : SkillsOf(checkpoint)) {
    if (skill.selection) ids.push_back(skill.id);
  }
  return ids;
}

std::vector<SkillEnergy> SkillRouter::Route(std::span<const TokenId> prompt, uint32_t chunk) {
  const std::vector<std::vector<double>> means = reader_.Means(prompt, chunk);
  std::vector<SkillEnergy> energies;
  for (const SkillRecord& skill : SkillsOf(*checkpoint_)) {
    if (!skill.selection) continue;
    const uint32_t layer = skill.selection->phi_layer;
    const auto index =
        static_cast<size_t>(std::find(layers_.begin(), layers_.end(), layer) - layers_.begin());
    const double energy = EnergyOf(*skill.selection, means[index]);
    if (!std::isfinite(energy)) {
      throw Error(ErrorCode::kInternal, "the energy of skill '" + skill.id + "' is no number",
                  {checkpoint_->files().front(), ""});
    }
    energies.push_back({skill.id, energy, layer});
  }
  std::stable_sort(energies.begin(), energies.end(),
                   [](const SkillEnergy& a, const SkillEnergy& b) { return a.energy < b.energy; });
  return energies;
}

}  // namespace moewe::model
