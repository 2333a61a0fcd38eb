// The sparse index (section 7): read and checked, never used in execution.
#ifndef MOEWE_FORMATS_CMF_SPARSE_INDEX_H_
#define MOEWE_FORMATS_CMF_SPARSE_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "formats/cmf/envelope.h"
#include "formats/cmf/header.h"
#include "formats/cmf/masks.h"

namespace moewe::formats::cmf {

struct SparseEntry {
  uint32_t task_id = 0;
  uint32_t layer = 0;
  std::vector<uint16_t> ffn_groups;  // of 32 neurons
  std::vector<uint8_t> heads;
};

// Empty if there is no section. Never allocates by a stated count. Throws Error{kParse}.
std::vector<SparseEntry> ParseSparseIndex(Bytes file, const Envelope& envelope,
                                          const std::string& path);

// Throws Error{kParse} unless every entry speaks of a mask and a layer of this file, of which no
// other one does, and lists, in order, what the mask leaves alive there: heads, and groups of 32
// neurons with at least one live neuron. (With loops, groups that live in at least one pass or in
// all that the entry covers can't be told apart, so only their range is checked.)
void CheckSparseIndex(const std::vector<SparseEntry>& entries, const MaskCatalog& masks,
                      const Header& header, const Where& where);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_SPARSE_INDEX_H_
