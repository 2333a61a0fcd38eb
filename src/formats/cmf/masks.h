// Task masks (section 5): which FFN neurons, heads, layers and experts are active for a task.
#ifndef MOEWE_FORMATS_CMF_MASKS_H_
#define MOEWE_FORMATS_CMF_MASKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/cmf/envelope.h"
#include "formats/cmf/header.h"

namespace moewe::formats::cmf {

// One mask. Bits are least significant first; rows point into the file.
struct TaskMask {
  uint32_t task_id = 0;
  std::string name;
  Json meta;   // the whole metadata object
  Bytes blob;  // all rows as they are stored
  // One row a visit (physical layer x loop, pass-major), or one a physical layer, which counts for
  // every pass: the row of a visit is ffn_rows[visit % ffn_rows.size()].
  std::vector<Bytes> ffn_rows;
  std::vector<Bytes> head_rows;   // one a physical layer
  std::vector<bool> layer_gates;  // one a physical layer
  std::vector<Bytes>
      expert_rows;  // one a physical layer; empty if the mask says nothing about experts
};

struct MaskCatalog {
  Json meta;                 // the whole metadata of the section; null without one
  std::string default_task;  // a label; empty if absent
  std::vector<TaskMask> masks;
};

constexpr uint64_t MaskBytes(uint64_t bits) { return (bits + 7) / 8; }

// Bit `i` of a row.
inline bool MaskBit(Bytes row, uint64_t i) {
  return (row[static_cast<size_t>(i / 8)] >> (i % 8) & 1) != 0;
}

// How many bits of a row are set; there are none beyond its dimension.
uint64_t LiveBits(Bytes row);

// "the file has 'a', 'b'", for messages.
std::string MaskNames(const MaskCatalog& catalog);

// The bits of required_features that a masks section asks for; 0 without one.
uint32_t MaskFeatures(bool has_masks, uint64_t num_loops);

// The bytes of a masks section: `meta` as it is, but for the place of each mask's blob, and the
// blobs (one a member of meta["masks"], on multiples of 8).
std::vector<uint8_t> SerializeMasks(Json meta, const std::vector<std::vector<uint8_t>>& blobs);

// An empty catalog if there is no section. Throws Error{kParse} for everything malformed, including
// set bits beyond a dimension.
MaskCatalog ParseMasks(Bytes file, const Envelope& envelope, const Header& header,
                       const std::string& path);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_MASKS_H_
