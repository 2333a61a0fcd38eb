// The affine subspace that a skill's texts span in a layer's residual stream: what routing compares
// a prompt with (CMF v2 section 9).
#ifndef MOEWE_CONVERT_SKILL_SUBSPACE_H_
#define MOEWE_CONVERT_SKILL_SUBSPACE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/cmf/skills.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

struct SubspaceOptions {
  uint32_t phi_layer = 0;  // whose output is looked at
  uint32_t rank = 8;       // at most so many directions
  size_t window = 64;      // tokens that make one phi: about a prompt
  size_t max_windows = 256;
  const std::atomic<bool>* cancel = nullptr;  // looked at between windows
};

// Cuts each text into windows, the last of a text only if it is the first or at least half as long,
// and of more than max_windows takes some at equal distances. phi of a window is the mean over its
// positions of the residual stream after phi_layer, as routing computes it (model/skill_router.h).
// The result's mean is that of all phi, its basis the directions in which they vary most, strongest
// first; the sign of a direction is that its largest component is positive. Depends on the model,
// texts and options only. Throws Error{kUsage} for fewer than two different windows, kInterrupted.
formats::cmf::SkillSelection FitSubspace(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                         std::span<const std::vector<model::TokenId>> texts,
                                         const SubspaceOptions& options, ThreadPool* pool);

// Eigenvectors of a symmetric matrix [n, n], row by row, by descending eigenvalue: cyclic Jacobi
// rotations in f64.
struct Eigen {
  std::vector<double> values;                // [n]
  std::vector<std::vector<double>> vectors;  // [n, n]
};
Eigen SymmetricEigen(std::vector<std::vector<double>> matrix);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SKILL_SUBSPACE_H_
