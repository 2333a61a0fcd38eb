// The routed experts of a model that does not fit its memory: matrices over the bytes that a store
// has read, checked when they come from the disk.
#ifndef MOEWE_MODEL_EXPERT_STREAM_H_
#define MOEWE_MODEL_EXPERT_STREAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experts/expert_store.h"
#include "formats/checkpoint.h"
#include "kernels/compute.h"
#include "model/expert_usage.h"
#include "model/model.h"
#include "model/stored_experts.h"
#include "model/weights.h"
#include "platform/thread_pool.h"

namespace moewe::model {

// A reader of `files` whose reads go to `memory`, as `options` say. Throws what opening throws.
std::unique_ptr<DiskReader> OpenReader(const StreamOptions& options,
                                       std::span<const std::string> files,
                                       std::span<uint8_t> memory);

// One thread at a time; stats() also while another one is in Idle().
class ExpertStream {
 public:
  // `verify`: an expert's stored hashes are checked when it is first read. `checkpoint` and
  // `weights`, which were bound without reading experts, must outlive the stream. Throws as
  // experts::ExpertStore, and Error{kParse, kBounds, kHashMismatch} for experts that stay in
  // memory.
  ExpertStream(const formats::Checkpoint& checkpoint, const ModelConfig& config,
               const Weights& weights, const StreamOptions& options, bool verify, ThreadPool* pool);
  ~ExpertStream();

  // Starts a layer's step: `experts` ascending, each once, none of them held. Then Next gives them,
  // some at a time, until it gives none; what it gave stays in place until it is called again.
  // Throws as the store, and Error{kHashMismatch, kParse, kBounds} naming a tensor.
  struct Loaded {
    uint32_t expert = 0;
    kernels::FfnMatrices ffn;
  };
  void Begin(uint32_t layer, std::span<const uint32_t> experts);
  std::span<const Loaded> Next();

  // An expert that is in memory as the weights have it.
  bool IsHeld(uint32_t layer, uint32_t expert) const { return numbers_[layer][expert] == kHeld; }

  // Whether guesses at what a later step will ask for can be of use; those guesses, the most likely
  // first.
  bool WantsGuesses() const;
  void Prefetch(uint32_t layer, std::span<const uint32_t> experts);

  // Reads and checks every expert once.
  void VerifyAll();

  // Lets what is read ahead at the start go on; true until no more of it comes.
  bool Idle();

  StreamStats stats() const {
    const std::lock_guard lock(idle_mutex_);
    return {store_->stats(), store_->disk()};
  }
  std::span<const std::vector<experts::StoredExpert>> stored() const { return store_->layers(); }
  // What experts are read into.
  Bytes memory() const { return memory_; }

 private:
  static constexpr uint32_t kHeld = UINT32_MAX;

  void CheckHeld(bool verify);
  void ReadFrequencies();
  void SaveFrequencies() const;
  void Check(uint32_t layer, const experts::LoadedExpert& loaded);
  void CheckPart(const formats::TensorView& tensor, bool verify, std::vector<uint64_t>* row_starts);
  const std::array<uint32_t, 3>& TensorsOf(uint32_t layer, uint32_t expert) const {
    return weights_.layers[layer].moe.expert_tensors[expert];
  }

  const formats::Checkpoint& checkpoint_;
  const Weights& weights_;
  ThreadPool& pool_;
  std::vector<std::vector<uint32_t>> experts_;  // by layer: which are in the store, ascending
  std::vector<std::vector<uint32_t>> numbers_;  // by layer and expert: place in that list
  std::vector<std::vector<bool>> unverified_;   // by layer and place; empty = nothing to verify
  std::vector<std::array<std::vector<uint64_t>, 3>> row_starts_;  // by slot; of vbit matrices
  Bytes memory_;
  std::unique_ptr<experts::ExpertStore> store_;
  std::optional<UsageFile> usage_;
  bool warms_ = false;  // there was something to be read ahead at the start
  mutable std::mutex idle_mutex_;
  uint64_t read_so_far_ = 0;  // bytes, when Idle last saw some come
  uint32_t idle_calls_ = 0;   // since then
  // Of the step that goes on.
  uint32_t layer_ = 0;
  std::vector<uint32_t> asked_;
  std::vector<Loaded> loaded_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_EXPERT_STREAM_H_
