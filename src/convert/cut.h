// What is cut out of a model for good: neurons of dense FFNs and experts (CMF v2 section 11).
//
// Section 11 and 11.1: nothing in a file says that it was cut but its shapes. A layer's FFN is as
// wide as its tensors; its experts are numbered anew from 0, in their old order, and the router has
// their rows.
#ifndef MOEWE_CONVERT_CUT_H_
#define MOEWE_CONVERT_CUT_H_

#include <cstdint>
#include <map>
#include <string>

#include "convert/selection.h"
#include "formats/checkpoint.h"

namespace moewe::convert {

// What becomes of one tensor.
struct CutTensor {
  bool dropped = false;
  std::string name;
  Selection selection;
  bool exact = false;  // small and decisive (a router): not to be quantized anew
};

// Lists what stays, by layer; a layer without an entry stays whole.
struct Cut {
  std::map<uint32_t, Kept> neurons;  // of a dense FFN; an empty list is a layer whose FFN is dead
  std::map<uint32_t, Kept> experts;  // at least one

  bool empty() const { return neurons.empty() && experts.empty(); }

  // `tensor` has a canonical name, or is one that a skill puts in such a tensor's place. Throws
  // Error{kParse} naming it if something is kept that it does not have.
  CutTensor Apply(const formats::TensorView& tensor, const formats::Checkpoint& source) const;

  // The same for equal cuts: part of what a resumed conversion must have in common.
  std::string Fingerprint() const;
};

// Tells apart "skill.ID." and the name of the tensor that it replaces; the first is empty for a
// tensor of the backbone.
struct SkillName {
  std::string_view prefix;
  std::string_view rest;
};
SkillName SplitSkillName(std::string_view name);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_CUT_H_
