// The header JSON of a CMF file (section 2), checked, with the facts that the container itself
// needs.
#ifndef MOEWE_FORMATS_CMF_HEADER_H_
#define MOEWE_FORMATS_CMF_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/cmf/envelope.h"
#include "formats/cmf/skills.h"

namespace moewe::formats::cmf {

struct ShardBlock {
  uint32_t no = 1;
  uint32_t count = 1;
};

struct Header {
  Json json;
  // What section sizes derive from (section 5).
  uint64_t num_layers = 0;
  uint64_t intermediate_size = 0;
  uint64_t num_attention_heads = 0;
  uint64_t num_loops = 1;
  uint64_t num_experts = 0;  // 0 = no moe block
  std::optional<ShardBlock> shard;
  std::vector<SkillRecord> skills;
  bool standalone_skill = false;  // a skill record has base_dir_hash (section 9.1)
};

// Throws Error{kParse} naming the key: invalid JSON, a required field that is missing, a field of
// the wrong type. The model's own rules about `arch` are the model's to check.
Header ParseHeader(Bytes file, const Envelope& envelope, const std::string& path);

// The stored hash of section "masks", "vocab" or "index"; nothing if not protected (no entry, or
// all zeros). Throws Error{kHashMismatch} for a value that is not 16 hex digits.
std::optional<uint64_t> SectionHash(const Json& header, const std::string& section,
                                    const std::string& path);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_HEADER_H_
