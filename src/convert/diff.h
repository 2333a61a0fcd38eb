// What is different between two models, whatever containers they are in.
#ifndef MOEWE_CONVERT_DIFF_H_
#define MOEWE_CONVERT_DIFF_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "formats/checkpoint.h"

namespace moewe::convert {

// A named thing that only one side has (the other is null) or that differs.
struct Difference {
  std::string name;  // "arch.num_layers", a tensor, a mask, a skill
  Json a;
  Json b;
};

struct DiffResult {
  std::vector<Difference> header;   // values; skills and hashes of sections are not among them
  std::vector<Difference> tensors;  // {"dtype", "shape", "nbytes", "hash"}
  std::vector<Difference> masks;    // {"hash"} of the mask's bits, and its metadata
  std::vector<Difference> skills;   // registry records
  bool tokenizer = false;           // whether tokenizer.json differs
  uint64_t same_tensors = 0;
  bool same() const {
    return header.empty() && tensors.empty() && masks.empty() && skills.empty() && !tokenizer;
  }
};

// Tensors are compared by dtype, shape and hash64, computed where it is not stored; a Hugging Face
// source by its canonical names and as the header that a conversion would write. Neither where in
// the file something lies nor the order of tensors counts.
DiffResult Diff(const formats::Checkpoint& a, const formats::Checkpoint& b);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_DIFF_H_
