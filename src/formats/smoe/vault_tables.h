// Parsing and checking everything in a .smoe vault before its blobs, and where the blobs lie.
#ifndef MOEWE_FORMATS_SMOE_VAULT_TABLES_H_
#define MOEWE_FORMATS_SMOE_VAULT_TABLES_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/byte_reader.h"
#include "base/function_ref.h"
#include "formats/smoe/layout.h"
#include "moewe/error.h"

namespace moewe::formats::smoe {

struct VaultTables {
  Header header;
  std::optional<ArchBlock> arch;        // nothing in v1
  std::vector<Expert> experts;          // in table order
  std::map<uint32_t, uint32_t> layers;  // layer with experts -> how many; ids are 0 to that
  // What is odd but harmless, each beginning with the field that it is about.
  std::vector<std::string> warnings;

  // Index into experts; nothing if there is no such expert. O(1).
  std::optional<uint32_t> Find(uint32_t layer, uint32_t expert) const {
    const auto found = by_id.find(Id(layer, expert));
    return found == by_id.end() ? std::nullopt : std::optional(found->second);
  }

  static uint64_t Id(uint32_t layer, uint32_t expert) { return uint64_t{layer} << 32 | expert; }
  std::unordered_map<uint64_t, uint32_t> by_id;
};

// Parses a whole file; `path` is for messages. Every rule of the format is checked: sizes, offsets
// and alignment of header, arch block, table, descriptors and blobs, that blobs and the parts of a
// blob do not overlap, that each layer has experts 0 to n - 1 once. Throws Error{kInvalidMagic,
// kUnsupportedVersion, kUnsupported, kBounds, kParse} naming the field.
//
// With `on_problem` faults of single experts go there and parsing goes on; then the result is only
// good if there was none.
VaultTables ParseVaultTables(Bytes file, const std::string& path);
VaultTables ParseVaultTables(Bytes file, const std::string& path,
                             FunctionRef<void(const Error&)> on_problem);

// The rules for the values of an arch block. Throws Error{kParse} naming the field in `path`.
void CheckArch(const ArchBlock& arch, const Header& header, const std::string& path);

// Whether bytes begin like a vault; the rest of the magic is checked by parsing.
inline bool LooksLikeVault(Bytes file) {
  return file.size() >= 4 && std::memcmp(file.data(), kMagic.data(), 4) == 0;
}

// Whether scales follow codes without a gap, as the codec reads them: the matrix can stay where it
// lies.
bool IsContiguous(const TensorDescriptor& tensor);

}  // namespace moewe::formats::smoe

#endif  // MOEWE_FORMATS_SMOE_VAULT_TABLES_H_
