#include "engine/speed.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/disk_turns.h"
#include "engine/random.h"
#include "model/decode_limit.h"
#include "model/name_parts.h"
#include "moewe/error.h"
#include "platform/memory_scan.h"

namespace moewe::engine {
namespace {

using Clock = std::chrono::steady_clock;
using model::TokenId;
using Logits = model::SequenceChunk::Logits;

// Tokens between two changes from decoding to scanning.
constexpr uint32_t kTokensATurn = 8;
// That the disk is measured for, a turn.
constexpr double kDiskTurnSeconds = 0.05;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Which bytes decoding a token reads, by the experts that it went through. Streamed experts lie
// somewhere in the memory that they are read into: as many bytes of that stand for each.
class ReadBytes : public model::ForwardObserver {
 public:
  explicit ReadBytes(const model::Model& model)
      : streamed_(model.stream_stats().has_value()),
        memory_(model.stream_memory()),
        layers_(model.config().num_layers) {
    for (const formats::TensorView& tensor : model.tensors()) {
      std::string_view name = tensor.name;
      const bool head = model.config().tie_word_embeddings ? name == "model.embed_tokens.weight"
                                                           : name == "lm_head.weight";
      if (head) AddScanPieces(tensor.bytes, &head_);
      const std::optional<uint32_t> layer = model::EatNumbered(&name, "model.layers.");
      if (!layer || *layer >= layers_.size()) continue;
      const std::optional<uint32_t> expert = model::EatNumbered(&name, ".mlp.experts.");
      if (expert) {
        AddScanPieces(ExpertBytes(tensor), &layers_[*layer].experts[*expert]);
      } else {
        AddScanPieces(tensor.bytes, &layers_[*layer].trunk);
      }
    }
  }

  void OnRouter(int layer, const uint32_t* ids, const float* /*weights*/, size_t rows,
                size_t top_k) override {
    for (size_t i = 0; i < rows * top_k; ++i) Note(layer, ids[i]);
  }
  void OnHidden(int layer, const float* /*data*/, size_t /*rows*/) override {
    if (layer >= 0) Note(layer, kTrunk);
  }
  void OnFinalNorm(const float* /*data*/, size_t /*rows*/) override { parts_.push_back(&head_); }

  // Since the last call, in the order of computation.
  const std::vector<Bytes>& Take() {
    pieces_.clear();
    for (const std::vector<Bytes>* part : parts_) {
      pieces_.insert(pieces_.end(), part->begin(), part->end());
    }
    parts_.clear();
    return pieces_;
  }

 private:
  static constexpr uint32_t kTrunk = UINT32_MAX;
  struct Layer {
    std::vector<Bytes> trunk;
    std::map<uint32_t, std::vector<Bytes>> experts;
  };

  Bytes ExpertBytes(const formats::TensorView& tensor) {
    if (!streamed_ || tensor.file_offset == formats::kNotInFile) return tensor.bytes;
    const size_t size = std::min(tensor.bytes.size(), memory_.size());
    if (memory_at_ > memory_.size() - size) memory_at_ = 0;
    const Bytes part = memory_.subspan(memory_at_, size);
    memory_at_ += size;
    return part;
  }

  // A layer that runs several times counts up with every visit.
  void Note(int visit, uint32_t expert) {
    Layer& layer = layers_[static_cast<size_t>(visit) % layers_.size()];
    parts_.push_back(expert == kTrunk ? &layer.trunk : &layer.experts[expert]);
  }

  const bool streamed_;
  const Bytes memory_;
  size_t memory_at_ = 0;
  std::vector<Layer> layers_;
  std::vector<Bytes> head_;
  std::vector<const std::vector<Bytes>*> parts_;
  std::vector<Bytes> pieces_;
};

class Meter {
 public:
  Meter(model::Model* model, model::KvPool* kv, ThreadPool* pool, const SpeedOptions& options)
      : model_(*model), kv_(*kv), pool_(*pool), options_(options), read_(*model) {
    Random random(1);
    tokens_.resize(SpeedPositions(options));
    for (TokenId& token : tokens_) {
      token = static_cast<TokenId>(random.Next() % model->config().vocab_size);
    }
    if (const auto stats = model->stream_stats()) {
      disk_.emplace(*model);
      expert_bytes_ = static_cast<double>(disk_->bytes_of_all()) /
                      static_cast<double>(std::max<uint64_t>(stats->store.experts, 1));
    }
  }

  // Speeds of one pass over everything.
  SpeedResult Pass() {
    SpeedResult speed;
    model::Sequence sequence(&kv_);
    if (disk_) speed.streamed.emplace();
    Mark();
    Clock::time_point start = Clock::now();
    Prefill(&sequence, options_.prompt);
    const double prefill_seconds = Since(start);
    speed.prefill_tokens_per_s = options_.prompt / prefill_seconds;
    if (disk_) AddSince(options_.prompt, prefill_seconds, &speed.streamed->prefill);
    sequence.Truncate(sequence.ReusableLength(options_.depth));
    Prefill(&sequence, options_.depth);

    double decode_seconds = 0.0;
    double scan_seconds = 0.0;
    uint64_t scan_bytes = 0;
    for (uint32_t done = 0; done < options_.decode;) {
      const uint32_t turn = std::min(kTokensATurn, options_.decode - done);
      Mark();
      start = Clock::now();
      for (uint32_t i = 0; i < turn; ++i) Forward(&sequence, 1, Logits::kLast, &read_);
      const double seconds = Since(start);
      decode_seconds += seconds;
      if (disk_) AddSince(turn, seconds, &speed.streamed->decode);
      done += turn;
      const std::vector<Bytes>& pieces = read_.Take();
      for (const Bytes piece : pieces) scan_bytes += piece.size();
      start = Clock::now();
      checksum_ = checksum_ + ScanMemory(pieces, pool_);
      scan_seconds += Since(start);
      if (disk_) disk_->Turn(kDiskTurnSeconds);
    }
    speed.decode_tokens_per_s = options_.decode / decode_seconds;
    speed.scan_bytes_per_s = static_cast<double>(scan_bytes) / scan_seconds;
    Compare(&speed);
    return speed;
  }

 private:
  // Where the next phase's counting begins.
  void Mark() {
    if (disk_) before_ = model_.stream_stats()->store;
  }
  void AddSince(uint32_t tokens, double seconds, StreamedPhase* phase) const {
    const experts::StoreStats now = model_.stream_stats()->store;
    phase->tokens += tokens;
    phase->resident += now.resident - before_.resident;
    phase->prefetched += now.prefetched - before_.prefetched;
    phase->missed += now.missed - before_.missed;
    phase->bytes_read += now.bytes_read - before_.bytes_read;
    phase->wait_seconds += now.wait_seconds - before_.wait_seconds;
    phase->busy_seconds += now.busy_seconds - before_.busy_seconds;
    phase->seconds += seconds;
  }

  // With what memory and disk gave in the same pass.
  void Compare(SpeedResult* speed) {
    model::DecodeLimit limit;
    limit.bytes = static_cast<double>(model_.weight_bytes_per_token());
    limit.memory_bytes_per_s = speed->scan_bytes_per_s;
    if (disk_) {
      StreamedSpeed& streamed = *speed->streamed;
      streamed.disk_bytes_per_s = disk_->TakeBytesPerSecond();
      streamed.read_bytes = disk_->read_bytes();
      limit.expert_bytes =
          expert_bytes_ * static_cast<double>(streamed.decode.uses()) / options_.decode;
      streamed.expert_bytes_per_token = static_cast<uint64_t>(limit.expert_bytes);
      limit.resident_rate = streamed.decode.resident_rate();
      limit.disk_bytes_per_s = streamed.disk_bytes_per_s;
    }
    speed->predicted_tokens_per_s = limit.tokens_per_s();
    speed->achieved = speed->decode_tokens_per_s / speed->predicted_tokens_per_s;
  }

  // Up to `end` positions.
  void Prefill(model::Sequence* sequence, uint32_t end) {
    while (sequence->length() < end) {
      const size_t n = std::min<size_t>(options_.chunk, end - sequence->length());
      const bool last = sequence->length() + n == end;
      Forward(sequence, n, last ? Logits::kLast : Logits::kNone, nullptr);
    }
  }

  void Forward(model::Sequence* sequence, size_t n, Logits wanted, ReadBytes* read) {
    if (options_.cancel != nullptr && *options_.cancel) {
      throw Error(ErrorCode::kInterrupted, "stopped while measuring");
    }
    model::SequenceChunk chunk;
    chunk.sequence = sequence;
    chunk.tokens = std::span(tokens_).subspan(sequence->length(), n);
    chunk.logits = wanted;
    logits_.clear();
    model_.Forward({&chunk, 1}, &logits_, read);
  }

  model::Model& model_;
  model::KvPool& kv_;
  ThreadPool& pool_;
  const SpeedOptions& options_;
  ReadBytes read_;
  std::optional<DiskTurns> disk_;  // of a streamed model
  double expert_bytes_ = 0.0;      // of one, then
  experts::StoreStats before_;
  std::vector<TokenId> tokens_;  // by position
  std::vector<float> logits_;
  volatile uint64_t checksum_ = 0;  // keeps the scan from being optimized away
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void Add(const StreamedPhase& phase, StreamedPhase* sum) {
  sum->tokens += phase.tokens;
  sum->resident += phase.resident;
  sum->prefetched += phase.prefetched;
  sum->missed += phase.missed;
  sum->bytes_read += phase.bytes_read;
  sum->wait_seconds += phase.wait_seconds;
  sum->busy_seconds += phase.busy_seconds;
  sum->seconds += phase.seconds;
}

// Counts of all passes, means and medians of their sizes and speeds.
StreamedSpeed Together(const std::vector<SpeedResult>& passes) {
  StreamedSpeed all = *passes.front().streamed;
  std::vector<double> disk = {all.disk_bytes_per_s};
  uint64_t expert_bytes = all.expert_bytes_per_token;
  for (size_t i = 1; i < passes.size(); ++i) {
    const StreamedSpeed& pass = *passes[i].streamed;
    Add(pass.prefill, &all.prefill);
    Add(pass.decode, &all.decode);
    disk.push_back(pass.disk_bytes_per_s);
    expert_bytes += pass.expert_bytes_per_token;
  }
  all.expert_bytes_per_token = expert_bytes / passes.size();
  all.disk_bytes_per_s = Median(std::move(disk));
  return all;
}

}  // namespace

uint64_t SpeedBytes(const model::ModelOutline& model) {
  // Lists grow by doubling. A tensor: its lists and their place in the map of experts, what its
  // disk turn reads.
  constexpr uint64_t kBytesATensor = 256;
  uint64_t bytes = DiskTurns::MemoryFor(model.stored().layers);
  for (const formats::TensorView& tensor : model.weights().tensors) {
    bytes += kBytesATensor + 2 * sizeof(Bytes) * (tensor.bytes.size() / kScanPiece + 1);
  }
  return bytes;
}

uint32_t SpeedPositions(const SpeedOptions& options) {
  return std::max(options.prompt, options.depth + options.decode);
}

SpeedResult MeasureSpeed(model::Model* model, model::KvPool* kv, ThreadPool* pool,
                         const SpeedOptions& options) {
  Meter meter(model, kv, pool, options);
  const auto progress = [&](uint32_t done) {
    if (options.progress) options.progress(done, options.repeats + 1);
  };
  meter.Pass();  // fills page cache and scratch memory, checks hashes
  progress(1);
  std::vector<SpeedResult> passes;
  for (uint32_t i = 0; i < options.repeats; ++i) {
    passes.push_back(meter.Pass());
    progress(i + 2);
  }
  const auto median = [&](double SpeedResult::* value) {
    std::vector<double> values;
    for (const SpeedResult& pass : passes) values.push_back(pass.*value);
    return Median(std::move(values));
  };
  SpeedResult result;
  result.prefill_tokens_per_s = median(&SpeedResult::prefill_tokens_per_s);
  result.decode_tokens_per_s = median(&SpeedResult::decode_tokens_per_s);
  result.scan_bytes_per_s = median(&SpeedResult::scan_bytes_per_s);
  result.predicted_tokens_per_s = median(&SpeedResult::predicted_tokens_per_s);
  result.achieved = median(&SpeedResult::achieved);
  if (passes.front().streamed) result.streamed = Together(passes);
  result.bytes_per_token = model->weight_bytes_per_token();
  result.decode_bytes_per_s =
      result.decode_tokens_per_s * static_cast<double>(result.bytes_per_token);
  return result;
}

}  // namespace moewe::engine
