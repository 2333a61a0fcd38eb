#include "model/expert_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/log.h"
#include "moewe/error.h"
#include "quant/vbit.h"

namespace moewe::model {

namespace {

// Half of what a layer would have if all had the same. Without a floor, an arena that is smaller
// than what one token goes through would have nothing left of a layer when the next token comes.
uint32_t FloorOf(const StoredExperts& stored, uint64_t arena_bytes) {
  const auto layers =
      static_cast<uint64_t>(std::count_if(stored.layers.begin(), stored.layers.end(),
                                          [](const auto& layer) { return !layer.empty(); }));
  if (layers == 0) return 0;
  return static_cast<uint32_t>(std::min(arena_bytes / stored.read_bytes, stored.count) /
                               (2 * layers));
}

}  // namespace

std::unique_ptr<DiskReader> OpenReader(const StreamOptions& options,
                                       std::span<const std::string> files,
                                       std::span<uint8_t> memory) {
  if (options.open_reader) return options.open_reader(files, memory);
  DiskOptions disk;
  disk.memory = memory;
  return OpenDiskReader(files, disk);
}

ExpertStream::ExpertStream(const formats::Checkpoint& checkpoint, const ModelConfig& config,
                           const Weights& weights, const StreamOptions& options, bool verify,
                           ThreadPool* pool)
    : checkpoint_(checkpoint), weights_(weights), pool_(*pool) {
  StoredExperts stored = FindStoredExperts(weights, config);
  if (!options.frequencies.empty()) {
    usage_.emplace(options.frequencies, checkpoint, weights, stored);
  }
  experts_ = std::move(stored.experts);
  size_t most = 0;
  for (size_t l = 0; l < experts_.size(); ++l) {
    numbers_.emplace_back(weights.layers[l].moe.experts.size(), kHeld);
    for (uint32_t i = 0; i < experts_[l].size(); ++i) numbers_[l][experts_[l][i]] = i;
    if (verify) unverified_.emplace_back(experts_[l].size(), true);
    most = std::max(most, experts_[l].size());
  }
  CheckHeld(verify);
  asked_.reserve(most);
  loaded_.reserve(most);
  experts::StoreOptions how;
  how.arena_bytes = options.arena_bytes;
  how.floor = FloorOf(stored, options.arena_bytes);
  how.files = checkpoint.files();
  how.check = [this](uint32_t layer, const experts::LoadedExpert& loaded) { Check(layer, loaded); };
  store_ = std::make_unique<experts::ExpertStore>(
      std::move(stored.layers), std::move(how), [&](std::span<uint8_t> memory) {
        memory_ = memory;
        return OpenReader(options, checkpoint.files(), memory);
      });
  row_starts_.resize(store_->slots());
  if (usage_) ReadFrequencies();
}

ExpertStream::~ExpertStream() {
  if (!usage_) return;
  try {
    SaveFrequencies();
  } catch (const std::exception& error) {  // a hint is not worth more
    LogWarning(fmt::format("how often experts were used is not kept: {}", error.what()));
  }
}

void ExpertStream::ReadFrequencies() {
  std::vector<uint64_t> used_before;
  try {
    used_before = usage_->Read();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return;
    LogInfo(fmt::format("how often experts were used before is not known: {}", error.what()));
    return;
  }
  store_->Prewarm(used_before);
  warms_ = true;
}

bool ExpertStream::Idle() {
  constexpr uint32_t kMostCalls = 100;  // without anything coming
  if (!warms_ || idle_calls_ >= kMostCalls) return false;
  const std::lock_guard lock(idle_mutex_);
  store_->Idle();
  const uint64_t read = store_->stats().bytes_read;
  idle_calls_ = read == read_so_far_ ? idle_calls_ + 1 : 0;
  read_so_far_ = read;
  return true;
}

void ExpertStream::SaveFrequencies() const {
  const std::vector<uint64_t>& used = store_->counts();
  if (std::all_of(used.begin(), used.end(), [](uint64_t count) { return count == 0; })) return;
  usage_->Save(used);
}

// Some of their matrices may be in files after all.
void ExpertStream::CheckHeld(bool verify) {
  for (uint32_t l = 0; l < numbers_.size(); ++l) {
    for (uint32_t e = 0; e < numbers_[l].size(); ++e) {
      if (!IsHeld(l, e)) continue;
      for (const uint32_t index : TensorsOf(l, e)) {
        CheckEncoding(checkpoint_, weights_.tensors[index]);
        if (verify) VerifyTensor(checkpoint_, weights_.tensors[index]);
      }
    }
  }
}

void ExpertStream::Begin(uint32_t layer, std::span<const uint32_t> experts) {
  layer_ = layer;
  asked_.clear();
  for (const uint32_t expert : experts) asked_.push_back(numbers_[layer][expert]);
  store_->Begin(layer, asked_);
}

std::span<const ExpertStream::Loaded> ExpertStream::Next() {
  loaded_.clear();
  for (const experts::LoadedExpert& loaded : store_->Next()) {
    const uint32_t expert = experts_[layer_][loaded.expert];
    kernels::FfnMatrices ffn = weights_.layers[layer_].moe.experts[expert];
    size_t part = 0;
    for (kernels::Matrix* matrix : {&ffn.gate, &ffn.up, &ffn.down}) {
      matrix->bytes = loaded.parts[part];
      if (matrix->dtype == DType::kVbit) {
        matrix->row_starts = row_starts_[loaded.slot][part].data();
      }
      ++part;
    }
    loaded_.push_back({expert, ffn});
  }
  return loaded_;
}

bool ExpertStream::WantsGuesses() const {
  const experts::ExpertStore& store = *store_;
  return store.slots() < store.ids().size() && store.WantsGuesses();
}

void ExpertStream::Prefetch(uint32_t layer, std::span<const uint32_t> experts) {
  asked_.clear();  // Begin is done with it
  for (const uint32_t expert : experts) {
    if (!IsHeld(layer, expert)) asked_.push_back(numbers_[layer][expert]);
  }
  store_->Prefetch(layer, asked_);
}

void ExpertStream::VerifyAll() {
  for (uint32_t l = 0; l < experts_.size(); ++l) {
    if (experts_[l].empty()) continue;
    Begin(l, experts_[l]);
    while (!Next().empty()) {
    }
  }
  store_->ResetStats();  // nobody has used an expert so far
}

void ExpertStream::Check(uint32_t layer, const experts::LoadedExpert& loaded) {
  const bool verify = !unverified_.empty() && unverified_[layer][loaded.expert];
  const std::array<uint32_t, 3>& tensors = TensorsOf(layer, experts_[layer][loaded.expert]);
  std::array<formats::TensorView, 3> views;
  bool variable = false;
  uint64_t bytes = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    views[i] = weights_.tensors[tensors[i]];
    views[i].bytes = loaded.parts[i];
    variable |= !quant::FindCodec(views[i].dtype)->encoded_size(views[i].matrix()).has_value();
    bytes += views[i].bytes.size();
  }
  std::array<std::vector<uint64_t>, 3>& row_starts = row_starts_[loaded.slot];
  constexpr uint64_t kWorthARegion = uint64_t{1} << 18;
  if ((verify || variable) && bytes >= kWorthARegion) {
    std::array<std::optional<Error>, 3> faults;  // tasks must not throw
    pool_.Run(views.size(), [&](size_t i, int) {
      try {
        CheckPart(views[i], verify, &row_starts[i]);
      } catch (const Error& error) {
        faults[i] = error;
      }
    });
    for (const std::optional<Error>& fault : faults) {
      if (fault) throw Error(*fault);
    }
  } else {
    for (size_t i = 0; i < views.size(); ++i) CheckPart(views[i], verify, &row_starts[i]);
  }
  if (verify) unverified_[layer][loaded.expert] = false;
}

void ExpertStream::CheckPart(const formats::TensorView& tensor, bool verify,
                             std::vector<uint64_t>* row_starts) {
  if (verify) VerifyTensor(checkpoint_, tensor);
  CheckEncoding(checkpoint_, tensor);
  if (tensor.dtype == DType::kVbit) {
    *row_starts = quant::VbitRowStarts(tensor.dtype, tensor.bytes, tensor.matrix());
  }
}

}  // namespace moewe::model
