// Writing a model as a set of shards (CMF v2 section 10).
#ifndef MOEWE_FORMATS_CMF_SHARD_WRITER_H_
#define MOEWE_FORMATS_CMF_SHARD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/cmf/writer.h"

namespace moewe::formats {

// Splits a plan whose sizes are all known into files of at most `max_bytes` each, greedily in
// order; a tensor that is too large by itself gets a file of its own. Masks, tokenizer, index, chat
// bundle and skills stay with the first. Every header says which shard of how many it is and, under
// "shard_set", room for the hash that all shards of a set have in common. One plan = it all fits
// one file, and the plan is unchanged. Throws Error{kUsage} for a `max_bytes` that would make more
// than 500 files.
std::vector<CmfPlan> SplitPlan(CmfPlan plan, uint64_t max_bytes);

// The file of shard `no` of `count`: "model.cmf" -> "model-00002-of-00005.cmf", and of a single one
// `dst` itself.
std::string ShardPath(const std::string& dst, size_t no, size_t count);

// A writer over what SplitPlan made, with the tensor indices of the whole plan. The files get their
// names when all of them are complete; an interruption between two names leaves a set that does not
// open as a model (a file is missing, or its "shard_set" is another). Throws what
// CmfWriter::Create throws.
std::unique_ptr<CmfWriter> CreateShardWriter(std::vector<CmfPlan> plans, const std::string& dst,
                                             const CmfWriterOptions& options);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_SHARD_WRITER_H_
