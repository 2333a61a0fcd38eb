// Whether a vault and its Scout make a model, and which one: the tensors say how it is built, the
// arch block gives the constants that no shape can show.
#ifndef MOEWE_FORMATS_SMOE_SCOUT_H_
#define MOEWE_FORMATS_SMOE_SCOUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/smoe/vault_tables.h"
#include "formats/tensor_index.h"
#include "platform/mapped_file.h"

namespace moewe::formats::smoe {

// Keys of a Scout's __metadata__ that moewe writes and checks; other readers ignore them.
inline constexpr char kKeyName[] = "moewe.key";    // VaultKey of the vault
inline constexpr char kArchName[] = "moewe.arch";  // the arch object of a CMF header, as JSON

// A Scout as it lies on disk: a safetensors file.
struct ScoutFile {
  // Views of its tensors have file_index 1, behind the vault; there is room for `more` of others.
  // Throws what mapping and ParseSafetensors throw.
  static ScoutFile Open(const std::string& path, size_t more = 0);

  std::string path;
  std::unique_ptr<MappedFile> file;
  TensorIndex tensors;
  std::vector<OpaqueTensor> opaque;
  std::map<std::string, std::string> metadata;
};

// What the two files say together.
struct Geometry {
  // The vault's arch block, or what a v1 vault means, as the tensors correct it: layers, presence
  // flags, widths of the experts (the widest), the shared expert (0 = none) and the first dense
  // layer are theirs.
  ArchBlock arch;
  uint32_t hidden_size = 0;
  uint32_t vocab_size = 0;
  uint32_t num_experts = 0;           // the most of a layer
  bool tied = false;                  // there is no lm_head
  std::string arch_json;              // moewe.arch; empty if the Scout has none
  std::vector<std::string> warnings;  // disagreements, each beginning with the field
};

// Every tensor that the model needs is looked for, with its shape; unknown tensors do not matter.
// Throws Error{kMissingTensor, kParse, kUnsupported, kHashMismatch} naming the tensor or the
// vault's field.
Geometry CheckPair(const VaultTables& vault, const std::string& vault_path, Bytes vault_file,
                   const ScoutFile& scout);

// What tells one vault from another of the same shape, at the price of a few reads: hash64 over
// table, descriptors and the start of each layer's first blob, 16 hex digits. The header and the
// arch block are left out, so that an upgrade in place keeps it.
std::string VaultKey(const VaultTables& vault, Bytes file);

}  // namespace moewe::formats::smoe

#endif  // MOEWE_FORMATS_SMOE_SCOUT_H_
