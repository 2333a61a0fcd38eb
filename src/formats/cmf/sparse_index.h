// The sparse index (section 7): read and checked, never used in execution.
#ifndef MOEWE_FORMATS_CMF_SPARSE_INDEX_H_
#define MOEWE_FORMATS_CMF_SPARSE_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "formats/cmf/envelope.h"

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

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_SPARSE_INDEX_H_
