// How fast a model runs here: prefill, decode, and a scan of the bytes that decoding read.
#ifndef MOEWE_ENGINE_SPEED_H_
#define MOEWE_ENGINE_SPEED_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "model/model.h"
#include "model/outline.h"
#include "platform/thread_pool.h"

namespace moewe::engine {

struct SpeedOptions {
  uint32_t prompt = 512;  // tokens of a prefill, at least 1
  uint32_t decode = 64;   // tokens decoded one by one, at least 1
  uint32_t depth = 128;   // positions before the first decoded token
  uint32_t chunk = 256;   // prefill tokens a step
  uint32_t repeats = 3;   // at least 1; results are medians, after one pass that does not count
  const std::atomic<bool>* cancel = nullptr;                 // looked at between steps
  std::function<void(uint32_t done, uint32_t of)> progress;  // after each pass
};

// What a phase of a streamed model asked of its store, over all passes that count.
struct StreamedPhase {
  uint64_t tokens = 0;
  uint64_t resident = 0;  // uses of an expert; like all else here, as in experts::StoreStats
  uint64_t prefetched = 0;
  uint64_t missed = 0;
  uint64_t bytes_read = 0;
  double wait_seconds = 0.0;
  double busy_seconds = 0.0;
  double seconds = 0.0;

  uint64_t uses() const { return resident + prefetched + missed; }
  double hidden_seconds() const { return std::max(0.0, busy_seconds - wait_seconds); }
  // Share of them that is in memory before anybody asks; 1 without any.
  double resident_rate() const {
    return uses() == 0 ? 1.0 : static_cast<double>(resident) / static_cast<double>(uses());
  }
};

struct StreamedSpeed {
  StreamedPhase prefill, decode;
  uint64_t expert_bytes_per_token = 0;  // decoding, wherever they come from
  uint64_t read_bytes = 0;              // of one read
  double disk_bytes_per_s = 0.0;        // that those reads get, in turn with decoding
};

struct SpeedResult {
  double prefill_tokens_per_s = 0.0;
  double decode_tokens_per_s = 0.0;
  uint64_t bytes_per_token = 0;     // of weights, that decoding reads
  double decode_bytes_per_s = 0.0;  // bytes_per_token * decode_tokens_per_s
  double scan_bytes_per_s = 0.0;
  // What memory and disk allow (model::DecodeLimit, with the hit rate that decoding had), and the
  // share of it that decoding reaches: medians, both of figures of one pass each.
  double predicted_tokens_per_s = 0.0;
  double achieved = 0.0;
  std::optional<StreamedSpeed> streamed;
};

// Bytes that measuring a model takes beside it: where every tensor lies, for the scan, and what the
// disk's turns read into.
uint64_t SpeedBytes(const model::ModelOutline& model);

// Positions of a sequence that a measurement fills.
uint32_t SpeedPositions(const SpeedOptions& options);

// Tokens are random but always the same. Decoding and scanning take turns every few tokens: the
// memory bandwidth of a shared machine changes from second to second, so only speeds of the same
// moment compare. The scan reads exactly the matrices that those tokens went through, in that order
// and with the model's threads (`pool`), as plain memory. Of a streamed model the disk has its
// turns, too. `kv` must hold SpeedPositions() positions. Throws Error{kInterrupted} when cancelled,
// and what Forward throws.
SpeedResult MeasureSpeed(model::Model* model, model::KvPool* kv, ThreadPool* pool,
                         const SpeedOptions& options);

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_SPEED_H_
