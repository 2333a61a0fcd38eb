// A v1 vault made a v2 vault in place: the arch block goes into the gap before the blobs.
#ifndef MOEWE_CONVERT_VAULT_UPGRADE_H_
#define MOEWE_CONVERT_VAULT_UPGRADE_H_

#include <functional>
#include <string>
#include <vector>

#include "formats/smoe/layout.h"

namespace moewe::convert {

struct UpgradeOptions {
  // A config.json, or a folder with one: where the constants come from. Empty = those that a v1
  // vault is run with.
  std::string config = {};
  // Of the vault; empty = the companion. Without a Scout the config alone says what is present.
  std::string scout = {};
  bool force = false;  // write the block of a v2 vault anew
  // Called once if another process is changing the vault, before waiting for it.
  std::function<void()> waiting = {};
};

struct UpgradeResult {
  formats::smoe::ArchBlock arch;
  uint64_t offset = 0;  // of the block
  std::vector<std::string> warnings;
};

// No blob moves. The block is written and synced, then header.reserved_ext, then header.version:
// stopped at any point the file is the v1 vault that it was (with --force: one of the two v2
// vaults, or the block is written again), and running this again completes it.
//
// Throws Error{kUsage} for a v2 vault without `force`, kUnsupported if the gap has not the room or
// the model's math does not fit the block, kMissingTensor without Scout and config, and what
// parsing and writing throw. Whether the result would be a good model is checked before anything is
// written.
UpgradeResult UpgradeVault(const std::string& path, const UpgradeOptions& options);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_VAULT_UPGRADE_H_
