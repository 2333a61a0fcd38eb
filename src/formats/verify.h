// Everything that can be wrong with a model file, as a list.
#ifndef MOEWE_FORMATS_VERIFY_H_
#define MOEWE_FORMATS_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "moewe/error.h"

namespace moewe::formats {

struct VerifyProblem {
  ErrorCode code;
  Where where;
  std::string message;
};

struct VerifyReport {
  std::vector<VerifyProblem> problems;   // empty = the file is valid
  std::vector<std::string> unprotected;  // what no hash covers, in words
  bool ok() const { return problems.empty(); }
};

// Called with the tensor bytes checked so far and in total.
using VerifyProgress = FunctionRef<void(uint64_t done, uint64_t total)>;

// Checks a CMF file (one shard alone, too), a safetensors file or a Hugging Face folder: structure,
// bounds, every stored hash, and that each tensor's bytes are well-formed for its dtype. Goes on
// after a problem where it can. Throws only what is not a fault of the file: Error{kNotFound, kIo}.
VerifyReport Verify(const std::string& path, VerifyProgress progress);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_VERIFY_H_
