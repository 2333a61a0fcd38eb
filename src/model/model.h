// A model that can run: weights bound by name, and the forward pass over batches of sequences.
#ifndef MOEWE_MODEL_MODEL_H_
#define MOEWE_MODEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experts/expert_store.h"
#include "formats/checkpoint.h"
#include "kernels/compute.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/skill_choice.h"
#include "platform/disk_reader.h"

namespace moewe::model {

using TokenId = int32_t;

class ModelOutline;
class TrunkMemory;

// When stored tensor hashes are checked.
enum class Verify : uint8_t {
  kLazy,  // each tensor before its first use: an expert's when the router first picks it
  kFull,  // every tensor of the file at load
  kNone,
};

// How routed experts that do not all fit in memory come from the checkpoint's files.
struct StreamOptions {
  uint64_t arena_bytes = 0;  // that they are read into: experts::StoreOptions
  // The file of how often each expert was used (experts/expert_frequencies.h): the most frequent
  // ones are read ahead when the model is loaded, and when it goes the file has its accesses too.
  // Empty = none. A file that can't be read or written changes nothing.
  std::string frequencies;
  // Where the trunk is, if it shall outlive the model: with the same for the next one over these
  // files, only what differs is read. No two models at a time.
  std::shared_ptr<TrunkMemory> trunk;
  // For tests: who reads `files`, into `memory` (empty = anywhere). Empty: OpenDiskReader.
  std::function<std::unique_ptr<DiskReader>(std::span<const std::string> files,
                                            std::span<uint8_t> memory)>
      open_reader;
};

struct StreamStats {
  experts::StoreStats store;
  DiskInfo disk;
};

struct LoadOptions {
  kernels::Activations activations = kernels::Activations::kInt8;
  // Its prediction head, if it has one, shall draft (Model::Draft). Not where experts are streamed.
  bool draft_head = false;
  // A task mask of the file; "none" = no mask; empty = the one that belongs to the skills, else the
  // file's default_task, if it names a mask.
  std::string task;
  SkillChoice skills;
  // What blended skills' tensors, which are not in the file, may take in memory.
  uint64_t blend_limit = std::numeric_limits<uint64_t>::max();
  Verify verify = Verify::kLazy;
  // Experts are streamed; empty = everything stays where the checkpoint has it.
  std::optional<StreamOptions> stream;
  // kLazy: the backbone's tensors, experts apart, were checked when this checkpoint was loaded
  // before.
  bool backbone_verified = false;
};

// One sequence's part of a step: `tokens` follow what `sequence` already holds.
struct SequenceChunk {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens;
  enum class Logits : uint8_t { kNone, kLast, kAll } logits = Logits::kLast;
};

// Receives intermediate values: for `logits --hidden/--router`, statistics and tests. Rows are
// tokens of the step in order. Called on the thread that called Forward.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Residual stream [rows, hidden]: layer -1 is the input of layer 0, layer i the state after layer
  // i. In a looped model `layer` counts visits, here and below: pass * num_layers + layer, before
  // the norm between passes.
  virtual void OnHidden(int /*layer*/, const float* /*data*/, size_t /*rows*/) {}
  virtual void OnFinalNorm(const float* /*data*/, size_t /*rows*/) {}
  virtual void OnAttention(int /*layer*/, const float* /*data*/, size_t /*rows*/) {}
  virtual void OnFfn(int /*layer*/, const float* /*data*/, size_t /*rows*/) {}
  // top_k ids and final weights of each row, weight-descending.
  virtual void OnRouter(int /*layer*/, const uint32_t* /*ids*/, const float* /*weights*/,
                        size_t /*rows*/, size_t /*top_k*/) {}
};

// Weights are immutable after loading, but Forward uses scratch memory: one caller at a time.
class Model {
 public:
  // Binds every tensor that the config asks for. Throws Error{kMissingTensor, kParse, kUnsupported,
  // kUnknownName, kHashMismatch}. `pool` must outlive the model.
  static std::unique_ptr<Model> Load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                     const LoadOptions& options, ThreadPool* pool);
  // The same from what was found out before, with the same options.
  static std::unique_ptr<Model> Load(ModelOutline outline, const LoadOptions& options,
                                     ThreadPool* pool);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const formats::Checkpoint& checkpoint() const = 0;

  // Bytes of weights that one decoded token reads (routed experts: top_k of them).
  virtual uint64_t weight_bytes_per_token() const = 0;
  virtual uint64_t weight_bytes_total() const = 0;
  virtual uint64_t expert_bytes_total() const = 0;  // of these, routed experts

  // Canonical tensors, as the model reads them: routed experts that are streamed have the bytes of
  // the mapped file, which nobody should touch.
  virtual std::span<const formats::TensorView> tensors() const = 0;

  // Between steps: lets reads ahead of streamed experts go on. True while it is worth being called
  // again soon.
  virtual bool Idle() { return false; }

  // Of streamed experts, since loading; nothing if all are in memory. Not while Forward runs, and
  // neither is the memory that they are read into, which is empty then.
  virtual std::optional<StreamStats> stream_stats() const = 0;
  virtual Bytes stream_memory() const = 0;
  // Where streamed experts lie, by layer; empty if all are in memory.
  virtual std::span<const std::vector<experts::StoredExpert>> streamed_experts() const {
    return {};
  }

  // Runs all chunks as one batch. The result for a position depends only on the tokens before it.
  // Appends logits rows [vocab_size] to *logits in chunk order. On an exception the sequences keep
  // their old length. Throws Error{kUsage} for a token outside of the vocabulary or a sequence
  // named twice, kOutOfBudget when the KV pool is full, kHashMismatch (Verify::kLazy), kIo for an
  // expert that can't be read. Chunks may be empty; a sequence may appear once.
  virtual void Forward(std::span<const SequenceChunk> chunks, std::vector<float>* logits,
                       ForwardObserver* observer = nullptr) = 0;

  // Whether the model was loaded with a prediction head.
  virtual bool has_draft_head() const { return false; }
  // What the head takes for the tokens behind `token`, which is the next one of a sequence with
  // room for it and all of `out` reserved. Returns how many it wrote: none where the state that it
  // begins with is not kept, as in a fork before its first step. `logits`, if not null, gets those
  // of every draft. The sequence is as it was. Throws Error{kHashMismatch}.
  virtual size_t Draft(Sequence* /*sequence*/, TokenId /*token*/, std::span<TokenId> /*out*/,
                       std::vector<float>* /*logits*/ = nullptr) {
    return 0;
  }
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_MODEL_H_
