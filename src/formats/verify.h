// Everything that can be wrong with a model file, as a list.
#ifndef MOEWE_FORMATS_VERIFY_H_
#define MOEWE_FORMATS_VERIFY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "formats/cmf/header.h"
#include "moewe/error.h"
#include "platform/thread_pool.h"

namespace moewe::formats {

struct VerifyProblem {
  ErrorCode code;
  Where where;
  std::string message;
};

struct VerifyReport {
  std::vector<VerifyProblem> problems;   // empty = the file is valid
  std::vector<std::string> warnings;     // odd, but without harm; each begins with the field
  std::vector<std::string> unprotected;  // what no hash covers, in words
  std::string signed_by;  // public key of a valid signature, 64 hex digits; empty = not signed
  // Of a shard, which one it is: it is checked alone, its siblings are not looked at.
  std::optional<cmf::ShardBlock> shard;
  bool ok() const { return problems.empty(); }
};

struct VerifyOptions {
  // The file that a standalone skill (section 9.1) was cut against; empty = not asked.
  std::string base = {};
  // Of a .smoe vault; empty = the companion.
  std::string scout = {};
};

// Called with the bytes checked so far and in total, on the caller's thread.
using VerifyProgress = FunctionRef<void(uint64_t done, uint64_t total)>;

// Checks a CMF file (one shard alone, too), a .smoe vault with its Scout, a safetensors file or a
// Hugging Face folder: structure, bounds, every stored hash, that each tensor's bytes are
// well-formed for its dtype, and the signature of a file that has one beside it. Tensors are
// checked on all of `pool`. Goes on after a problem where it can, and lists problems in the order
// of the file. Throws only what is not a fault of the file: Error{kNotFound, kIo}, Error{kUsage}
// for a `base` given with a file that is no standalone skill, or a `scout` with one that is no
// vault.
VerifyReport Verify(const std::string& path, const VerifyOptions& options, ThreadPool* pool,
                    VerifyProgress progress);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_VERIFY_H_
