// moewe as a library: open a model, ask it things.
//
//   moewe::Model model = moewe::Model::Open("model.cmf");
//   moewe::Session session(model);
//   session.Say("What is the capital of France?", {}, [](std::string_view text) { std::cout <<
//   text; });
//
// Errors are thrown as moewe::Error (moewe/error.h). Results are the same bits whatever else the
// model is doing, however many threads it has and whatever it has answered before; only --
// on one instruction set -- the activations mode and the type of the KV cache change them.
#ifndef MOEWE_MOEWE_H_
#define MOEWE_MOEWE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moewe/error.h"

namespace moewe {

using Token = int32_t;

enum class Activations : uint8_t {
  kInt8,  // int8 per 32 values into products with quantized weights; float weights always take f32
  kF32,
};
enum class KvType : uint8_t {
  kAuto,  // f32 with f32 activations, else f16
  kF16,
  kF32,
  kQ8,  // int8 with an f16 scale for every 32: half of f16's memory
};
// When the hashes that a file stores of its tensors are checked.
enum class Verify : uint8_t {
  kLazy,  // each tensor before its first use
  kFull,  // all of them when the model is opened
  kNone,
};

struct ModelOptions {
  // Budget for weights, KV cache and activations: "8GiB", "500MB", "auto" (what is available, with
  // a margin), "all", "min". If the weights do not fit it, routed experts are read from the file
  // when they are needed: slower, with the same results.
  std::string memory = "auto";
  int threads = 0;         // 0 = the cores this process may use
  uint32_t context = 0;    // positions of a prompt with its answer; 0 = the model's, at most
                           // 4096, less if the budget allows no more
  uint32_t chunk = 0;      // prompt tokens a step; 0 = 256, or up to 512 if experts are streamed
  uint32_t sequences = 1;  // whole contexts that the KV cache has room for; more requests than fit
                           // take turns
  // Tokens that a step may check beside the next one, guessed from what followed the same words
  // before: text that repeats itself is answered faster, with the same tokens. Empty = as many as
  // pay by measured times; 0 = none; else always so many, at most kMostSpeculated. There are none
  // where experts are streamed.
  static constexpr uint32_t kMostSpeculated = 64;
  std::optional<uint32_t> speculate;
  Activations activations = Activations::kInt8;
  KvType kv = KvType::kAuto;
  std::string task;  // task mask of the file; "none" = none; empty = the one that belongs to the
                     // skill, else the file's default
  // Skill of the file: its id; "a=0.6,b=0.4" a blend of several; "auto" the one whose texts a
  // prompt is nearest to: requests are then answered one after the other, each by its own choice;
  // empty or "none" = none.
  std::string skill;
  // With "auto": the two nearest ones, blended by softmax(-E / skill_blend); 0 = the nearest alone.
  double skill_blend = 0.0;
  Verify verify = Verify::kLazy;
  std::string scout;  // of a .smoe vault; empty = <stem>.scout.safetensors beside it
};

// What a model is and how it was opened.
struct ModelInfo {
  std::string file;    // as it was opened
  std::string family;  // "qwen3_moe"
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t vocab_size = 0;
  uint32_t num_experts = 0;  // 0 = a dense model
  uint32_t experts_per_token = 0;
  uint32_t longest_context = 0;  // that the model was made for
  uint32_t context = 0;          // as opened
  uint64_t weight_bytes = 0;
  uint64_t weight_bytes_per_token = 0;  // that one decoded token reads
  uint64_t kv_bytes = 0;                // of the whole KV cache
  int threads = 0;
  bool has_tokenizer = false;
  bool has_chat_template = false;
};

// What reading experts from disk has cost a model that does not fit its memory.
struct StreamingStats {
  uint64_t arena_bytes = 0;  // of memory that experts are read into
  uint64_t slots = 0;        // experts that it holds
  uint64_t experts = 0;      // that there are, in all layers
  // Uses of an expert by a step that found it in memory because it had been used, because it had
  // been foreseen, or not at all.
  uint64_t resident = 0;
  uint64_t prefetched = 0;
  uint64_t missed = 0;
  uint64_t bytes_read = 0;
  uint64_t prefetch_reads = 0;   // experts read because they were foreseen ...
  uint64_t prefetch_unused = 0;  // ... and given up without having been used
  uint64_t retries = 0;
  double wait_seconds = 0.0;    // that computing stood still for the disk
  double hidden_seconds = 0.0;  // that the disk was busy while computing went on, at most
  std::string method;           // "io_uring", "pread"
  bool direct = false;          // past the page cache
  std::string fallback;         // what of the above is second choice, and why; empty if nothing is
  uint32_t depth = 0;           // reads in flight at most
};

// How tokens are chosen, and until when. What is empty is taken from the model's own generation
// config, else it is the value named.
struct GenerateOptions {
  std::optional<float> temperature;         // 0.7; 0 = always the most likely token
  std::optional<uint32_t> top_k;            // 0 = off
  std::optional<float> top_p;               // 0.95; 1 = off
  std::optional<float> min_p;               // 0 = off
  std::optional<float> repetition_penalty;  // 1 = off
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t penalty_window = 0;  // tokens that the three look back on; 0 = all
  std::vector<std::pair<Token, float>> logit_bias;
  std::optional<uint64_t> seed;   // random if empty; Answer says which it was
  uint32_t max_tokens = 0;        // 0 = until the model ends or the context is full
  std::vector<std::string> stop;  // the answer ends before the first of these
  bool ignore_eos = false;        // go on past the model's end tokens
  // Ends the answer when it becomes true; looked at between steps. Must outlive the call.
  const std::atomic<bool>* cancel = nullptr;
};

enum class FinishReason : uint8_t {
  kStop,    // an end token or a stop string
  kLength,  // max_tokens or the context
  kCancelled,
};
std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", "cancelled"

// How far a prompt is from the texts of a skill (CMF section 9): the skill with the least energy is
// nearest. phi_layer is the layer whose state was compared.
struct SkillEnergy {
  std::string id;
  double energy = 0.0;
  uint32_t phi_layer = 0;
};

// What guessing tokens ahead did for an answer.
struct Speculation {
  uint64_t drafted = 0;        // tokens that were checked ahead
  uint64_t accepted = 0;       // of these, that the answer has
  uint64_t steps = 0;          // of the model, after the prompt
  uint64_t drafted_steps = 0;  // of these, that checked tokens ahead or computed some again for it
  // Times as fast as with the other steps alone, by their mean time; empty if they were too few
  // to say.
  std::optional<double> speed_up;
};

struct Answer {
  std::string text;
  std::vector<Token> ids;
  FinishReason finish_reason = FinishReason::kLength;
  uint64_t seed = 0;
  float temperature = 0.0f;  // that was used
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;      // of the prompt, that were in the KV cache already
  double queue_seconds = 0.0;    // until the first step
  double prefill_seconds = 0.0;  // from there to the first token
  double decode_seconds = 0.0;   // the others
  Speculation speculation;
  std::string skill;  // that answered: an id, a blend "a=0.6,b=0.4", empty = none
  std::vector<SkillEnergy> skill_energies;  // with skill "auto", ascending
};

// Called with an answer's text as it is made: complete UTF-8, nothing of a stop string. It runs on
// the thread that asked; an exception from it ends the answer and comes out of the call.
using OnText = std::function<void(std::string_view text)>;

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// An open model. Copies are handles of the same one, which lives as long as the last of them and of
// its sessions. Every method may be called from any thread; answers that are asked for at the same
// time are computed together.
class Model {
 public:
  // `path` is a .cmf file or a Hugging Face folder. Throws Error with the codes of a file that is
  // not there (kNotFound, kIo), is invalid (kInvalidMagic ... kUnsupported) or does not fit the
  // budget (kOutOfBudget), kUnknownName for a task or skill, kUsage for other options.
  static Model Open(const std::string& path, const ModelOptions& options = {});

  const ModelInfo& info() const;

  // Of a model whose experts are streamed, since it was opened (or, with skill "auto", since its
  // skills last changed); nothing if all weights are in memory. Waits for a step that runs.
  std::optional<StreamingStats> streaming() const;

  // Special tokens written in `text` are recognized; `add_special` puts the model's own before it
  // (BOS and the like). Throw Error{kUnsupported} if the model has no tokenizer, {kUsage} for text
  // that is not UTF-8 and ids that are no token.
  std::vector<Token> Tokenize(std::string_view text, bool add_special = true) const;
  std::string Detokenize(std::span<const Token> ids, bool skip_special = false) const;

  // Messages as the model's chat template puts them, ready to be answered; ChatML if the model has
  // no template. Special tokens in a message stay text. Throws Error{kParse} for a fault that the
  // template has or raises.
  std::vector<Token> Prompt(std::span<const Message> messages) const;

  // Continues the prompt. Throws Error{kUsage} for a prompt that is empty or leaves no room in the
  // context and for options out of range, {kOutOfBudget} when the KV cache is full, {kInternal}
  // when the model's logits are not numbers.
  Answer Generate(std::span<const Token> prompt, const GenerateOptions& options = {},
                  const OnText& on_text = {}) const;

  // Logits of the token that follows: vocab_size values.
  std::vector<float> Logits(std::span<const Token> ids) const;

  // How near `ids` are to each skill of the file, ascending. Needs a model that was opened with
  // skill "auto" (Error{kUsage}).
  std::vector<SkillEnergy> RankSkills(std::span<const Token> ids) const;

  // Natural logarithm of the probability of each of ids[1], ids[2], ... after those before it.
  std::vector<double> LogProbs(std::span<const Token> ids) const;

 private:
  friend class Session;
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// One conversation. What was said before is not computed again as long as the KV cache has it. One
// caller at a time; several sessions of a model may be used from several threads.
class Session {
 public:
  // `system` is what the system message says; empty = none.
  explicit Session(Model model, std::string system = "");

  // Adds what the user says and the answer to the conversation. A cancelled answer stays as far as
  // it came. If there is no answer -- an error, cancelled before its first word -- the conversation
  // stays as it was. Throws as Model::Prompt and Model::Generate.
  Answer Say(std::string_view text, const GenerateOptions& options = {},
             const OnText& on_text = {});

  // Answers what the user said last once more. Throws Error{kUsage} if there is nothing.
  Answer Again(const GenerateOptions& options = {}, const OnText& on_text = {});

  // Forgets what the user said last and its answer; false if there is nothing.
  bool Undo();
  // Forgets all but the system message.
  void Clear();
  // Takes effect from the next answer on; the conversation stays.
  void SetSystem(std::string system);

  const std::vector<Message>& messages() const;  // the system message first, if there is one
  const Model& model() const { return model_; }

 private:
  Answer Reply(std::vector<Message> messages, const GenerateOptions& options,
               const OnText& on_text);

  Model model_;
  std::vector<Message> messages_;
};

}  // namespace moewe

#endif  // MOEWE_MOEWE_H_
