// How a model's memory divides over weights, KV cache and working space, what context fits a
// budget, and whether routed experts have to be streamed. The one place of this arithmetic: `plan`
// shows it, every verb that runs a model obeys it.
//
// A model is resident if it fits with the context that was asked for, or else with a quarter of the
// usual one. Otherwise its experts are streamed (if they lie in files): what the budget leaves is
// divided between the KV cache and an arena for experts. A context that nobody asked for then
// leaves the arena at least half of that room and twice the least it needs, as far as
// kLeastContext allows.
#ifndef MOEWE_MODEL_MEMORY_PLAN_H_
#define MOEWE_MODEL_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "model/kv_cache.h"
#include "model/model.h"
#include "model/outline.h"

namespace moewe::model {

// Positions of a sequence if nobody asks for more.
inline constexpr uint32_t kDefaultContext = 4096;
// Below this a context is not made smaller to fit a budget.
inline constexpr uint32_t kLeastContext = 256;

// Tokens of a prefill step if nobody says: of a resident model, and the most of a streamed one,
// whose every step reads most experts of every layer. A tight budget halves the latter until its
// working space is no more than a fifth of the room for KV cache and arena: each halving reads as
// many experts once more for a prompt, a fifth fewer slots miss a few percent more of a token's.
inline constexpr uint32_t kResidentChunk = 256;
inline constexpr uint32_t kStreamedChunk = 512;
inline constexpr uint32_t kLeastStreamedChunk = 64;

// Beside the model: code, libraries, parsed configuration. A process that runs nothing has 14 MB.
inline constexpr uint64_t kProgramBytes = uint64_t{16} << 20;
// What a loaded tokenizer takes for every byte of its JSON: 10 to 11 with published ones of 9 to 33
// MB.
inline constexpr uint64_t kTokenizerFactor = 11;
// Beside a streamed model: a disk reader's threads and queues; for every tensor what it is called,
// where it is and how it is bound; page tables, where the system has no huge pages, as a part of
// everything.
inline constexpr uint64_t kReaderBytes = uint64_t{2} << 20;
inline constexpr uint64_t kBytesPerTensor = 700;
inline constexpr uint64_t kPageTablePart = 512;

struct MemoryRequest {
  uint64_t budget = 0;   // bytes
  bool least = false;    // instead of a budget: the least that can run
  uint32_t context = 0;  // positions a sequence must have; 0 = as many as fit, at most the
                         // model's and kDefaultContext
  KvType kv_type = KvType::kF16;
  uint32_t chunk = 0;  // tokens of a prefill step; 0 = the constants above
  size_t sequences = 1;
  size_t logit_rows = 1;  // rows of logits that a step gives (see LogitRowsOfStep)
  // Drafted tokens that a step of a resident model checks at most, each with its row of logits:
  // room for them is made if it is asked for, else taken if it is there.
  size_t draft_rows = 0;
  bool needs_drafts = false;
  uint64_t beside = 0;  // bytes that whoever runs the model needs for its own purposes
  // Where prompts are routed to skills: the layers that run for it (SkillRouter::OutlineFor), and
  // what the weights of the skills that are not loaded yet may take more than the backbone's: of a
  // resident model, and of a streamed one (see LeastStreamedBytes).
  const ModelOutline* router = nullptr;
  uint64_t skill_reserve = 0;
  uint64_t streamed_skill_reserve = 0;
};

// Bytes, all of them resident.
struct MemoryPlan {
  uint64_t budget = 0;
  uint64_t trunk = 0;        // weights that every token reads, and the embedding
  uint64_t experts = 0;      // weights of routed experts: all of them
  bool streamed = false;     // experts come from the disk, and instead of them there are ...
  uint64_t arena = 0;        // ... slots for as many as fit
  uint64_t held = 0;         // ... and those that are in no file
  uint64_t slots = 0;        // of the arena
  uint64_t least_slots = 0;  // that it needs
  uint64_t blended = 0;      // of both: skills' tensors mixed in f32, which are not in the file
  uint64_t skills = 0;       // routing a prompt to skills, and the weights reserved for them
  uint64_t kv = 0;           // of `context` positions in every sequence
  uint64_t states = 0;       // of recurrent layers, in every sequence
  uint64_t activations = 0;  // of one step
  uint64_t tokenizer = 0;
  uint64_t program = kProgramBytes;  // with what the request needs beside the model
  uint32_t context = 0;
  uint32_t chunk = 0;     // tokens of a prefill step at most
  size_t draft_rows = 0;  // that there is room for
  bool shrunk = false;    // the context is smaller than it would have been with more memory

  uint64_t total() const {
    return trunk + (streamed ? arena + held : experts) + skills + kv + states + activations +
           tokenizer + program;
  }
  bool fits() const { return total() <= budget; }
};

// Throws Error{kUsage} for a context that is longer than the model's. A plan that does not fit is a
// result like another: with the context that was asked for, or the least.
MemoryPlan PlanMemory(const ModelOutline& model, const MemoryRequest& request);

// Throws Error{kOutOfBudget} naming every part if `plan` does not fit.
void RequireFit(const MemoryPlan& plan, const std::string& file);

// The weights of a streamed model with the least that its experts need, and what is kept for each
// tensor; of a model without experts in files, all weights.
uint64_t LeastStreamedBytes(const ModelOutline& model);

// Keys and values that one position takes in all layers.
uint64_t KvBytesPerPosition(const ModelConfig& config, KvType type);

// How many tokens a step takes at most if every one of them gives logits: of `chunk` as many as a
// bounded buffer holds, whatever the vocabulary, and at least 1.
size_t LogitRowsOfStep(const ModelConfig& config, uint32_t chunk);

// Working space of a step of `rows` tokens, `logit_rows` of which give logits.
uint64_t ActivationBytes(const ModelOutline& model, size_t rows, size_t logit_rows);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_MEMORY_PLAN_H_
