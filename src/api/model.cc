// moewe::Model: what an open model has, and requests to its engine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <type_traits>

#include "api/open_model.h"
#include "api/streaming_stats.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "engine/score.h"
#include "moewe/error.h"
#include "moewe/moewe.h"
#include "text/bundle_template.h"
#include "text/tokenizer.h"

namespace moewe {
namespace {

// What the model's chat bundle says about ending answers and drawing tokens.
struct Defaults {
  explicit Defaults(const Json& bundle) {
    if (!bundle.is_object()) return;
    if (const auto ids = bundle.find("eos_token_ids"); ids != bundle.end() && ids->is_array()) {
      for (const Json& id : *ids) {
        if (!id.is_number_integer()) continue;
        eos_ids.push_back(InRange<Token>(id, "tokenizer_config.eos_token_ids"));
      }
    }
    const auto found = bundle.find("generation");
    if (found != bundle.end() && found->is_object()) generation = *found;
  }

  template <typename T>
  T Or(const std::optional<T>& asked, const char* key, T otherwise) const {
    if (asked) return *asked;
    const auto own = generation.find(key);
    if (own == generation.end() || !own->is_number()) return otherwise;
    return InRange<T>(*own, std::string("tokenizer_config.generation.") + key);
  }

  // Not the number that a narrower type would make of it.
  template <typename T>
  static T InRange(const Json& number, const std::string& field) {
    const auto value = number.get<double>();
    const bool fits = value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
                      value <= static_cast<double>(std::numeric_limits<T>::max()) &&
                      (std::is_floating_point_v<T> || value == std::floor(value));
    if (!fits) throw Error(ErrorCode::kParse, number.dump() + " is out of range", {"", field});
    return static_cast<T>(value);
  }

  // A model that says do_sample: false is made to be read greedily, whatever numbers stand beside.
  bool never_samples() const {
    const auto found = generation.find("do_sample");
    return found != generation.end() && *found == false;
  }

  std::vector<Token> eos_ids;
  Json generation = Json::object();
};

bool AsksForSampling(const GenerateOptions& options) {
  return options.temperature || options.top_k || options.top_p || options.min_p;
}

FinishReason Public(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return FinishReason::kStop;
    case engine::FinishReason::kCancelled:
      return FinishReason::kCancelled;
    default:
      return FinishReason::kLength;
  }
}

Speculation Public(const engine::DraftStats& stats) {
  Speculation result;
  result.drafted = stats.drafted;
  result.accepted = stats.accepted;
  result.steps = stats.steps;
  result.drafted_steps = stats.steps - stats.plain_steps;
  if (stats.speed_up() > 0.0) result.speed_up = stats.speed_up();
  return result;
}

std::vector<SkillEnergy> Public(const std::vector<model::SkillEnergy>& energies) {
  std::vector<SkillEnergy> result;
  for (const model::SkillEnergy& skill : energies) {
    result.push_back({skill.id, skill.energy, skill.phi_layer});
  }
  return result;
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "length";
}

struct Model::Impl {
  Impl(const std::string& path, const ModelOptions& options)
      : open(api::Open(path, options)), defaults(open.checkpoint->chat_bundle()) {
    const formats::Checkpoint& checkpoint = *open.checkpoint;
    const std::string& file = checkpoint.files().front();
    if (!checkpoint.tokenizer_json().empty()) {
      LoadTokenizer(file);
    }
    if (tokenizer != nullptr) {
      // Answers to ChatML prompts end with it, whether or not the model names it.
      if (const auto id = tokenizer->TokenToId("<|im_end|>")) defaults.eos_ids.push_back(*id);
    }
    chat = text::TemplateOfBundle(checkpoint.chat_bundle(), Json::object(), file);
    Describe(options);
    if (chat == nullptr) chat = text::ChatTemplate::ChatMl();
    sequences = options.sequences;
    if (open.router == nullptr) StartEngine();
  }

  void StartEngine() {
    engine = std::make_unique<engine::Engine>(
        open.model.get(), tokenizer.get(),
        engine::SchedulerOptions{.context = open.context,
                                 .kv_blocks = open.BlocksFor(sequences),
                                 .states = model::StatesFor(sequences, open.plan.draft_rows > 0),
                                 .kv_type = open.kv_type,
                                 .chunk = open.chunk,
                                 .scored_rows = ScoredRows(),
                                 .draft_rows = open.plan.draft_rows,
                                 .drafts_by_gain = !open.request.needs_drafts});
  }

  // Rows of logits that scoring may ask of a step: one a sequence is planned for, more as far as
  // the budget goes.
  size_t ScoredRows() const {
    constexpr uint64_t kMost = 32;
    const uint64_t total = open.plan.total();
    const uint64_t left = open.plan.budget > total ? open.plan.budget - total : 0;
    const uint64_t row = uint64_t{open.model->config().vocab_size} * sizeof(float);
    return static_cast<size_t>(std::min(kMost, 1 + left / row));
  }

  // A model runs on ids without a tokenizer that this program can make: whoever needs it meets the
  // error then. What is no JSON at all is a broken file.
  void LoadTokenizer(const std::string& file) {
    const Bytes json = open.checkpoint->tokenizer_json();
    try {
      tokenizer = text::Tokenizer::FromJson(json, file);
    } catch (const Error& error) {
      if (!Json::accept(json.begin(), json.end())) throw;
      tokenizer_error = error;
    }
  }

  void Describe(const ModelOptions& options) {
    const model::ModelConfig& config = open.model->config();
    info.file = open.checkpoint->files().front();
    info.family = config.arch_name;
    info.num_layers = config.num_layers;
    info.hidden_size = config.hidden_size;
    info.vocab_size = config.vocab_size;
    info.num_experts = config.has_moe ? config.moe.num_experts : 0;
    info.experts_per_token = config.has_moe ? config.moe.top_k : 0;
    info.longest_context = config.max_position_embeddings;
    info.context = open.context;
    info.weight_bytes = open.model->weight_bytes_total();
    info.weight_bytes_per_token = open.model->weight_bytes_per_token();
    info.kv_bytes =
        open.BlocksFor(options.sequences) * model::KvPool::BytesPerBlock(config, open.kv_type);
    info.threads = open.threads->num_threads();
    info.has_tokenizer = tokenizer != nullptr;
    info.has_chat_template = chat != nullptr;
  }

  const text::Tokenizer& NeedTokenizer() const {
    if (tokenizer_error) throw *tokenizer_error;
    if (tokenizer == nullptr) {
      throw Error(ErrorCode::kUnsupported, "the model has no tokenizer; it takes token ids (--ids)",
                  {info.file, "tokenizer"});
    }
    return *tokenizer;
  }

  engine::SamplingParams Sampling(const GenerateOptions& options) const {
    engine::SamplingParams params;
    params.temperature = defaults.Or(options.temperature, "temperature", 0.7f);
    if (defaults.never_samples() && !AsksForSampling(options)) params.temperature = 0.0f;
    params.top_k = defaults.Or(options.top_k, "top_k", 0u);
    params.top_p = defaults.Or(options.top_p, "top_p", 0.95f);
    params.min_p = defaults.Or(options.min_p, "min_p", 0.0f);
    params.repetition_penalty = defaults.Or(options.repetition_penalty, "repetition_penalty", 1.0f);
    params.presence_penalty = options.presence_penalty;
    params.frequency_penalty = options.frequency_penalty;
    params.penalty_window = options.penalty_window;
    params.logit_bias = options.logit_bias;
    params.seed = options.seed ? *options.seed : std::random_device()();
    return params;
  }

  // With a router the skills are those that the prompt asks for; the engine stays as long as they
  // do.
  engine::Result Run(engine::Request request, Answer* answer = nullptr) {
    std::unique_lock<std::mutex> lock(routing, std::defer_lock);
    if (open.router != nullptr) {
      lock.lock();
      const std::vector<model::SkillEnergy> energies = open.Route(request.prompt);
      const model::SkillChoice choice = open.Choose(energies);
      if (engine == nullptr || choice != open.load.skills) {
        engine.reset();
        open.Bind(choice);
        StartEngine();
      }
      if (answer != nullptr) answer->skill_energies = Public(energies);
    }
    if (answer != nullptr && !open.load.skills.empty()) {
      answer->skill = model::SkillChoiceText(open.load.skills);
    }
    engine::Result result = engine->Generate(std::move(request));
    if (result.error) throw *result.error;
    return result;
  }

  // Logits of every position of `ids`, or of the last one.
  void Score(std::span<const Token> ids, bool last_only,
             std::function<void(size_t first, std::span<const float> logits)> on_logits) {
    engine::Request request;
    request.prompt.assign(ids.begin(), ids.end());
    request.on_logits = std::move(on_logits);
    request.last_logits_only = last_only;
    Run(std::move(request));
  }

  api::OpenModel open;
  Defaults defaults;
  std::unique_ptr<text::Tokenizer> tokenizer;  // may be null
  std::optional<Error> tokenizer_error;        // why it is
  std::unique_ptr<text::ChatTemplate> chat;
  ModelInfo info;
  uint32_t sequences = 1;
  std::mutex routing;  // with a router: held by the request that runs, which may change the model
  std::unique_ptr<engine::Engine> engine;  // null: a router has not seen a prompt yet
};

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Model Model::Open(const std::string& path, const ModelOptions& options) {
  return Model(std::make_shared<Impl>(path, options));
}

const ModelInfo& Model::info() const { return impl_->info; }

std::optional<StreamingStats> Model::streaming() const {
  std::unique_lock<std::mutex> lock(impl_->routing, std::defer_lock);
  if (impl_->open.router != nullptr) lock.lock();
  if (!impl_->open.load.stream || impl_->engine == nullptr) return std::nullopt;
  return api::StreamingStatsOf(impl_->engine->stream_stats());
}

std::vector<Token> Model::Tokenize(std::string_view text, bool add_special) const {
  const text::Tokenizer& tokenizer = impl_->NeedTokenizer();
  RequireUtf8(text, {"", "text"});
  return tokenizer.Encode(text, add_special);
}

std::string Model::Detokenize(std::span<const Token> ids, bool skip_special) const {
  return impl_->NeedTokenizer().Decode(ids, skip_special);
}

std::vector<Token> Model::Prompt(std::span<const Message> messages) const {
  const text::Tokenizer& tokenizer = impl_->NeedTokenizer();
  text::ChatRequest request;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    RequireUtf8(message.role, {"", "messages[" + std::to_string(i) + "].role"});
    RequireUtf8(message.content, {"", "messages[" + std::to_string(i) + "].content"});
    request.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  // The template writes the special tokens that it wants, BOS included.
  return tokenizer.Encode(impl_->chat->Render(request), /*add_special_tokens=*/false);
}

Answer Model::Generate(std::span<const Token> prompt, const GenerateOptions& options,
                       const OnText& on_text) const {
  for (size_t i = 0; i < options.stop.size(); ++i) {
    RequireUtf8(options.stop[i], {"", "stop[" + std::to_string(i) + "]"});
  }
  engine::Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling = impl_->Sampling(options);
  request.max_tokens = options.max_tokens;
  request.stops = options.stop;
  if (!options.ignore_eos) request.eos_ids = impl_->defaults.eos_ids;
  request.cancel = options.cancel;
  request.on_text = on_text;
  Answer answer;
  answer.seed = request.sampling.seed;
  answer.temperature = request.sampling.temperature;
  engine::Result result = impl_->Run(std::move(request), &answer);
  answer.text = std::move(result.text);
  answer.ids = std::move(result.ids);
  answer.finish_reason = Public(result.finish_reason);
  answer.prompt_tokens = result.prompt_tokens;
  answer.reused_tokens = result.reused_tokens;
  answer.queue_seconds = result.queue_seconds;
  answer.prefill_seconds = result.prefill_seconds;
  answer.decode_seconds = result.decode_seconds;
  answer.speculation = Public(result.drafts);
  return answer;
}

std::vector<float> Model::Logits(std::span<const Token> ids) const {
  std::vector<float> last;
  impl_->Score(ids, /*last_only=*/true, [&](size_t, std::span<const float> logits) {
    last.assign(logits.begin(), logits.end());
  });
  return last;
}

std::vector<SkillEnergy> Model::RankSkills(std::span<const Token> ids) const {
  if (impl_->open.router == nullptr) {
    throw Error(ErrorCode::kUsage, "skills are ranked by a model that is opened with skill auto");
  }
  const std::lock_guard<std::mutex> lock(impl_->routing);
  return Public(impl_->open.Route(ids));
}

std::vector<double> Model::LogProbs(std::span<const Token> ids) const {
  const size_t vocab = impl_->info.vocab_size;
  std::vector<double> log_probs;
  impl_->Score(ids, /*last_only=*/false, [&](size_t first, std::span<const float> logits) {
    for (size_t p = first; !logits.empty() && p + 1 < ids.size(); ++p) {
      log_probs.push_back(-engine::NegativeLogLikelihood(logits.first(vocab), ids[p + 1]));
      logits = logits.subspan(vocab);
    }
  });
  return log_probs;
}

}  // namespace moewe
