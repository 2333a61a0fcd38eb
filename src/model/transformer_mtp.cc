// A transformer's multi-token-prediction head: one more layer that reads a position's hidden state
// and the token that follows it, and says what comes behind that one (section 2.1 of the format).
//
// Its row for a token lies where the token does, one behind the hidden state that it reads. So it
// has the positions, rope tables and blocks of the main model's rows, and none for the first. While
// the model runs, its keys and values are written along: attention only, since nobody asks what it
// would say. A draft is then one row of the whole head, the next one another that reads the first
// one's state. What its cache holds of drafts that were wrong, or of a state that was not kept,
// costs right drafts at most: no answer depends on it.
#include <algorithm>
#include <variant>

#include "kernels/vector_ops.h"
#include "model/transformer.h"

namespace moewe::model {

void Transformer::JoinRow(size_t row, TokenId token, const float* hidden) {
  const size_t width = config_.hidden_size;
  float* out = joined_ + row * 2 * width;
  const auto norm = [&](const float* x, const std::vector<float>& weight, float* to) {
    kernels::RmsNorm(x, weight.data(), config_.norm_weight_offset, config_.rms_norm_eps, width, to);
  };
  EmbedToken(token, out);
  norm(out, weights_.mtp->embed_norm, out);
  if (hidden == nullptr) {
    std::fill_n(out + width, width, 0.0f);
  } else {
    norm(hidden, weights_.mtp->hidden_norm, out + width);
  }
}

void Transformer::FeedMtp(std::span<const SequenceChunk> chunks, const Step& step) {
  const size_t n = rows_.size();
  const size_t width = config_.hidden_size;
  const float* states = hidden_;
  if (config_.mtp_reads_normed) {
    Norm(hidden_, weights_.final_norm, n, normed_);
    states = normed_;
  }
  joined_ = joined_scratch_.Need(n * 2 * width);
  ForRows(compute_.pool(), n, [&](size_t row) {
    const SequenceChunk& chunk = chunks[rows_[row].chunk];
    const size_t place = row - first_rows_[rows_[row].chunk];
    const size_t length = chunk.sequence->length();
    const float* before = nullptr;
    if (place > 0) {
      before = states + (row - 1) * width;
    } else if (length > 0) {
      before = chunk.sequence->HiddenAt(length - 1);
    }
    JoinRow(row, chunk.tokens[place], before);
  });
  for (size_t c = 0; c < chunks.size(); ++c) {
    Sequence& sequence = *chunks[c].sequence;
    const size_t count = chunks[c].tokens.size();
    if (count == 0) continue;
    // The sequence ends after any of its last rows, of which it was told how many are certain.
    const size_t inside = sequence.rows_inside();
    const size_t first = (inside == 0 ? count : std::min(inside, count)) - 1;
    const float* rows = states + (first_rows_[c] + first) * width;
    sequence.KeepHidden(sequence.length() + first, {rows, (count - first) * width}, width);
  }
  float* hidden = mtp_hidden_scratch_.Need(n * width);
  const kernels::Projection join{weights_.mtp->join, nullptr, hidden, width};
  compute_.Project({&join, 1}, joined_, n, 2 * width);
  Norm(hidden, mtp_->weights->attention_norm, n, normed_);
  Step quiet = step;
  quiet.observer = nullptr;
  std::visit([&](auto& block) { block.Run(quiet, normed_, branch_); }, mtp_->mixer);
}

size_t Transformer::Draft(Sequence* sequence, TokenId token, std::span<TokenId> out,
                          std::vector<float>* logits) {
  const size_t length = sequence->length();
  const float* state = length == 0 ? nullptr : sequence->HiddenAt(length - 1);
  if (!mtp_ || state == nullptr) return 0;
  const size_t width = config_.hidden_size;
  const size_t vocab = config_.vocab_size;
  joined_ = joined_scratch_.Need(2 * width);
  float* hidden = mtp_hidden_scratch_.Need(2 * width);  // and what the next draft reads
  float* row_logits = mtp_logits_.Need(vocab);
  sequences_.assign(1, sequence);
  first_rows_.assign({0, 1});
  for (size_t i = 0; i < out.size(); ++i) {
    rows_.assign(1, {0, static_cast<uint32_t>(length + i)});
    PrepareRows();
    const Step step{&compute_, rows_, sequences_, first_rows_, ropes_, nullptr, hidden};
    JoinRow(0, i == 0 ? token : out[i - 1], state);
    const kernels::Projection join{weights_.mtp->join, nullptr, hidden, width};
    compute_.Project({&join, 1}, joined_, 1, 2 * width);
    const int visit = static_cast<int>(config_.num_visits());
    RunMixer(*mtp_, visit, step, hidden);
    RunFfn(*mtp_, visit, step, hidden);
    float* normed = hidden + width;
    Norm(hidden, weights_.mtp->norm, 1, normed);
    const kernels::Projection head{weights_.lm_head, nullptr, row_logits, vocab};
    compute_.Project({&head, 1}, normed, 1, width);
    const float* best = std::max_element(row_logits, row_logits + vocab);
    out[i] = static_cast<TokenId>(best - row_logits);
    if (logits != nullptr) logits->insert(logits->end(), row_logits, row_logits + vocab);
    state = config_.mtp_reads_normed ? normed : hidden;
  }
  return out.size();
}

}  // namespace moewe::model
