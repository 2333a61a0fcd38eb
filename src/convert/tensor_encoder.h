// How the tensors of a planned conversion are encoded: with which options, and which of them share
// a budget.
#ifndef MOEWE_CONVERT_TENSOR_ENCODER_H_
#define MOEWE_CONVERT_TENSOR_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "convert/plan.h"
#include "convert/vbit_budget.h"
#include "formats/checkpoint.h"
#include "platform/thread_pool.h"
#include "quant/codec.h"

namespace moewe::convert {

struct EncodeChoices {
  quant::EncodeOptions options;  // row_bits is set for each tensor
  // Gives experts that are often chosen more of a vbit budget; empty = all count alike.
  ExpertCounts route_counts;
};

// Everything in `choices` that decides bytes: what a resume must have in common.
std::string Describe(const EncodeChoices& choices);

class TensorEncoder {
 public:
  // All of them must outlive this. Throws what VbitBudget throws.
  TensorEncoder(const formats::Checkpoint& source, const ConvertPlan& plan,
                const EncodeChoices& choices, ThreadPool& pool);

  // Tensor `index` of the plan, which is not copied. Throws what EncodeTensor and CheckRange throw.
  std::vector<uint8_t> Encode(size_t index);

  // The bytes that Encode would make; where only the data tells, by looking at it.
  uint64_t Size(size_t index);

 private:
  Where WhereOf(size_t index) const;
  quant::EncodeOptions OptionsOf(size_t index);

  const formats::Checkpoint& source_;
  const ConvertPlan& plan_;
  quant::EncodeOptions options_;
  VbitBudget budget_;
  ThreadPool& pool_;
};

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_TENSOR_ENCODER_H_
