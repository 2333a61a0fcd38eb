// Recorded routing in a file.
//
// Written: one JSON value a line. The first is {"format": "moewe-trace", "version": 1,
// "num_layers": L, "num_experts": {"LAYER": N, ...}, "expert_bytes": B}; every other one
// {"layer": V, "ids": [[e, ...], ...]}, what layer V (in a looped model: visit) chose for some
// tokens, a list a token. Lines of one layer are in token order.
//
// Read: that, or what `logits --router` writes, {"LAYER": {"ids": [[e, ...], ...], ...}, ...}.
#ifndef MOEWE_EXPERTS_TRACE_FILE_H_
#define MOEWE_EXPERTS_TRACE_FILE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "experts/simulate.h"
#include "platform/atomic_file.h"

namespace moewe::experts {

// The file appears when Commit returns. One thread.
class TraceWriter {
 public:
  // `num_experts` by layer, of those that have some. Throws what AtomicFile throws, as all of it.
  TraceWriter(const std::string& path, uint32_t num_layers,
              const std::map<uint32_t, uint32_t>& num_experts, uint64_t expert_bytes);

  void Add(uint32_t visit, std::span<const uint32_t> ids, size_t top_k);
  void Commit() { file_.Commit(); }

 private:
  AtomicFile file_;
};

// Throws Error{kNotFound, kIo}, Error{kParse} naming the layer for everything that is no trace:
// rows of different lengths, experts out of range or twice in a row, layers with different numbers
// of tokens, no tokens at all.
RoutingTrace ReadRoutingTrace(const std::string& path);

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_TRACE_FILE_H_
