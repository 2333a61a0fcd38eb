// The part of the scheduler that gives answers their tokens, with and without drafts.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/log.h"
#include "engine/prompt_lookup.h"
#include "engine/scheduler_task.h"

namespace moewe::engine {
namespace {

// Requests that draft side by side at most. More of them make a step's rows many without drafts.
constexpr size_t kMostDrafting = 4;

// Of a prompt lookup: so many tokens that were the same speak for what followed more than a head.
constexpr size_t kSureMatch = 6;

}  // namespace

// How many drafted tokens all requests of the next step may have together.
size_t Scheduler::DraftsOfStep() const {
  const size_t most_requests = options_.drafts_by_gain ? 1 : kMostDrafting;
  if (!can_draft_ || running_.size() > most_requests) return 0;
  size_t again = 0;
  for (const auto& task : running_) {
    if (!task->decodes()) return 0;
    again += task->again;
  }
  return options_.draft_rows - std::min(options_.draft_rows, again);
}

// Whether a step of the sequence can be taken back to its first `rows`.
bool Scheduler::KeepsState(model::Sequence& sequence, size_t rows) {
  if (pool_.recurrent() && running_.size() > 1 && pool_.free_states() < running_.size()) {
    return false;
  }
  while (!sequence.KeepInside(rows)) {
    if (!kept_.EvictOldest()) return false;
  }
  return true;
}

// Makes `task.drafted`, and room for it, if there is a draft: returns its length.
size_t Scheduler::AddDrafts(Task& task, size_t most) {
  // A token that ends the answer needs none after it.
  most = std::min(most, options_.context - task.tokens.size() - 1);
  if (task.request.max_tokens != 0) {
    most = std::min(most, task.request.max_tokens - task.result.ids.size() - 1);
  }
  if (most == 0) return 0;
  if (task.drafter == nullptr) {
    task.drafter = options_.make_drafter != nullptr ? options_.make_drafter()
                                                    : std::make_unique<PromptLookup>();
  }
  const std::span<const TokenId> certain = task.pending();
  task.drafted.assign(certain.begin(), certain.end());
  task.drafted.resize(certain.size() + most);
  const std::span<TokenId> drafted = std::span(task.drafted).last(most);
  const Draft found = task.drafter->Propose(task.tokens, drafted);
  const auto worth = [&](const Draft& draft) {
    const size_t n = std::min(draft.length, most);
    if (n == 0 || !options_.drafts_by_gain) return n;
    return task.draft_length.Choose(step_times_, draft.match, n, pool_.recurrent());
  };
  // A head knows more than a short match. It reads the state before the one pending token.
  const bool asks_head =
      model_->has_draft_head() && certain.size() == 1 && found.match < kSureMatch && !head_failed_;
  size_t n = asks_head ? worth({most, DraftLength::kHead}) : 0;
  const bool by_head = n > 0;
  if (!by_head) n = worth(found);
  // Nobody steps back for a draft, now or by lacking a block or a state for what is certain.
  model::Sequence& sequence = *task.sequence;
  const auto needed = [&](size_t drafts) { return sequence.BlocksNeeded(certain.size() + drafts); };
  while (n > 0 && needed(n) > needed(0) && needed(n) + running_.size() > pool_.free_blocks()) --n;
  if (n == 0 || !KeepsState(sequence, certain.size())) return 0;
  sequence.Reserve(certain.size() + n);
  if (by_head) n = DraftByHead(sequence, certain.back(), drafted.first(n));
  task.draft_match = by_head ? DraftLength::kHead : found.match;
  task.drafted.resize(certain.size() + n);
  return n;
}

size_t Scheduler::DraftByHead(model::Sequence& sequence, TokenId token, std::span<TokenId> out) {
  try {
    return model_->Draft(&sequence, token, out);
  } catch (...) {
    // No request needs the head: its fault, a wrong hash say, is said once and costs drafts only.
    head_failed_ = true;
    LogWarning(std::string("the prediction head drafts nothing more: ") + CurrentError().what());
    return 0;
  }
}

// Draws tokens from the rows in order, as steps of one token each would: every row is what the
// model gives after the tokens before it, as long as those are the answer's. Sampler, penalties,
// stop strings and limits see one token after the other and know nothing of drafts.
void Scheduler::Decode(const Planned& planned, std::span<float> rows) {
  Task& task = *planned.task;
  const std::span<const TokenId> drafts = planned.drafts;
  const size_t vocab_size = model_->config().vocab_size;
  const size_t drafted_from = task.sequence->length() - drafts.size();
  const bool decodes = !task.result.ids.empty();
  rows = rows.last((1 + drafts.size()) * vocab_size);
  size_t accepted = 0;
  std::optional<FinishReason> end;
  while (true) {
    end = Sample(task, rows.subspan(accepted * vocab_size, vocab_size));
    if (end || accepted == drafts.size() || task.tokens.back() != drafts[accepted]) break;
    ++accepted;
  }
  if (decodes) {
    NoteStep(planned, accepted, end.has_value());
    // What was computed for tokens that the answer does not have goes.
    task.sequence->Settle(drafted_from + accepted);
    task.again = drafted_from + accepted - task.sequence->length();
  }
  if (end) Finish(task, *end);
}

// The next token, and the reason if it is the answer's end.
std::optional<FinishReason> Scheduler::Sample(Task& task, std::span<float> logits) {
  const Request& request = task.request;
  Result& result = task.result;
  const TokenId id = task.sampler.Sample(logits);
  if (!task.first_token) task.first_token = Clock::now();
  if (std::ranges::find(request.eos_ids, id) != request.eos_ids.end()) return FinishReason::kStop;
  result.ids.push_back(id);
  task.tokens.push_back(id);
  task.sampler.Observe(id);
  const std::string text = task.answer.Push(id);
  if (!text.empty() && request.on_text) request.on_text(text);
  if (task.answer.stopped()) return FinishReason::kStop;
  if (result.ids.size() == request.max_tokens || task.tokens.size() >= options_.context) {
    return FinishReason::kLength;
  }
  return std::nullopt;
}

void Scheduler::NoteStep(const Planned& planned, size_t accepted, bool ended) {
  const size_t rows = planned.chunk.tokens.size();
  const size_t drafts = planned.drafts.size();
  if (rows != 1 + planned.task->again + drafts) return;  // computed again after it stepped back
  const double seconds = Seconds(step_began_, Clock::now());
  DraftStats& stats = planned.task->result.drafts;
  stats.drafted += drafts;
  stats.accepted += accepted;
  ++stats.steps;
  stats.seconds += seconds;
  drafted_tokens_ += drafts;
  accepted_tokens_ += accepted;
  if (rows == 1) {
    ++stats.plain_steps;
    stats.plain_seconds += seconds;
  } else if (drafts > 0) {
    const size_t compared = ended ? accepted : std::min(accepted + 1, drafts);
    planned.task->draft_length.Note(planned.task->draft_match, compared, accepted);
  }
  if (chunks_.size() == 1) step_times_.Add(rows, seconds);
}

}  // namespace moewe::engine
