// Made-up weights in the shape of well-known models, for benchmarks: what a model costs to run
// depends on its shape and encoding, not on what it has learned.
#ifndef MOEWE_CONVERT_SYNTHETIC_H_
#define MOEWE_CONVERT_SYNTHETIC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct SyntheticOptions {
  std::string shape;    // a name of SyntheticShapes()
  uint32_t layers = 0;  // 0 = as many as the model has
  uint32_t vocab = 0;   // 0 = the model's
  DType quant = DType::kQ8Row;
};

// Names of the shapes there are.
std::vector<std::string> SyntheticShapes();

// A checkpoint that ConvertToCmf() with the same `quant` writes without encoding anything: tensors
// come in the dtypes that ChooseDType() gives them. Matrices hold noise of standard deviation
// cols^-1/2, which keeps every layer's output near unit variance and routes tokens evenly. Matrices
// of one shape take turns with a few encodings that the checkpoint holds in memory; the file
// written from it has bytes of its own for each. The same options always give the same bytes.
// Throws Error{kUnknownName} for a shape that does not exist, naming those that do.
std::unique_ptr<formats::Checkpoint> MakeSynthetic(const SyntheticOptions& options,
                                                   ThreadPool& pool);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SYNTHETIC_H_
