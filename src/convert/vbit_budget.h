// The widths of vbit rows where tensors share a budget: the experts of one layer and projection.
//
// Joint water-filling (CMF v2 section 3.2): a loud expert gets more bits than a quiet one, a row
// more than its expert's average by its own amplitude, and the mean over the family is the one
// asked for.
#ifndef MOEWE_CONVERT_VBIT_BUDGET_H_
#define MOEWE_CONVERT_VBIT_BUDGET_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/expert_counts.h"
#include "convert/plan.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// amplitudes[e][row] = quant::VbitAmplitude of the experts' rows; every expert has some. `counts`:
// selections of each expert, or empty. The widths, in the same arrangement.
std::vector<std::vector<uint8_t>> JointVbitWidths(const std::vector<std::vector<float>>& amplitudes,
                                                  std::span<const uint64_t> counts,
                                                  float mean_bits);

// Which family an expert's matrix belongs to, and which expert's it is.
struct ExpertTensor {
  std::string family;  // "model.layers.3.mlp.experts.*.up_proj.weight"
  uint32_t layer = 0;
  uint32_t expert = 0;
};
std::optional<ExpertTensor> ParseExpertTensor(const std::string& name);

// Widths for the expert tensors of one conversion that become vbit; a family is scanned when the
// first of its tensors is asked for. One thread at a time.
class VbitBudget {
 public:
  // `plan` and `pool` must outlive this. Throws Error{kUsage} if there are `counts` but not for an
  // expert that becomes vbit.
  VbitBudget(const ConvertPlan& plan, ExpertCounts counts, float mean_bits, ThreadPool& pool);

  // Of tensor `index` of the plan: one width a row, or empty where its budget is its own. Valid as
  // long as this.
  std::span<const uint8_t> WidthsOf(size_t index);

 private:
  struct Member {
    size_t index;  // of the tensor
    uint32_t expert;
    std::vector<uint8_t> widths;
  };
  struct Family {
    uint32_t layer = 0;
    bool allocated = false;
    std::vector<Member> members;
  };

  void Allocate(Family* family);
  std::vector<float> Amplitudes(const formats::TensorView& tensor);

  const ConvertPlan& plan_;
  ExpertCounts counts_;
  float mean_bits_;
  ThreadPool& pool_;
  std::vector<Family> families_;
  std::map<size_t, std::pair<size_t, size_t>> places_;  // tensor -> family, member
};

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_VBIT_BUDGET_H_
