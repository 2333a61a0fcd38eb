// A CMF file again with another masks section or index, and everything else as it was.
#ifndef MOEWE_FORMATS_CMF_REWRITE_H_
#define MOEWE_FORMATS_CMF_REWRITE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/cmf/cmf_file.h"

namespace moewe::formats {

// What changes; nothing = stays.
struct CmfChanges {
  std::optional<std::vector<uint8_t>> masks;  // empty = no masks section
  std::optional<std::vector<uint8_t>> index;  // empty = no index
};

// Writes `source` (of a set its first shard, which has the sections) with `changes` to `dst`, which
// may be the source itself: it appears complete or not at all (platform/atomic_file.h), with the
// source's permissions. Tensors, their offsets in the data section and the directory stay byte for
// byte, so that the file keeps its identity for standalone skills (section 9.1). Dead bytes outside
// of the data section are dropped. A hash that the source does not have for directory or tokenizer
// is not added; header, masks and index get theirs. Throws Error{kIo, kNoSpace}.
void RewriteCmf(const CmfFile& source, const CmfChanges& changes, const std::string& dst);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_REWRITE_H_
