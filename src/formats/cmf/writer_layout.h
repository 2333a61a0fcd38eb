// What the writer of one file and the planner of shards must agree on: where things go and how long
// the header is. Internal to this folder.
#ifndef MOEWE_FORMATS_CMF_WRITER_LAYOUT_H_
#define MOEWE_FORMATS_CMF_WRITER_LAYOUT_H_

#include <cstdint>
#include <string>

#include "formats/cmf/directory.h"
#include "formats/cmf/envelope.h"
#include "formats/cmf/writer.h"

namespace moewe::formats {

// Tensors from this size on start on a page, so that they can be mapped and read directly.
inline constexpr uint64_t kPageAlignedFrom = 16 * 1024;

inline uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Where, relative to the data section, a tensor goes after one that ended at `end`.
inline uint64_t TensorOffset(uint64_t end, uint64_t nbytes) {
  return AlignUp(end, nbytes >= kPageAlignedFrom ? cmf::kDataAlignment : cmf::kTensorAlignment);
}

// Where the data section begins; `names`: bytes of all names together.
inline uint64_t DataOffset(uint64_t header, uint64_t tensors, uint64_t names) {
  return AlignUp(
      cmf::kEnvelopeSize + header + cmf::kDirectoryHeaderSize + tensors * cmf::kRecordSize + names,
      cmf::kDataAlignment);
}

// The header's text: "format" and "version" first, then the caller's keys, "section_hashes"
// renewed.
std::string HeaderText(const CmfPlan& plan);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_WRITER_LAYOUT_H_
