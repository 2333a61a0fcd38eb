// moewe vault: changing .smoe vaults in place.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "cli/verbs.h"
#include "convert/vault_upgrade.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

struct Flags {
  std::string file;
  convert::UpgradeOptions options;
};

int Upgrade(const Flags& flags, const Globals& globals) {
  convert::UpgradeOptions options = flags.options;
  options.waiting = [&] { LogInfo("waiting for another process that changes " + flags.file); };
  const convert::UpgradeResult result = convert::UpgradeVault(flags.file, options);
  for (const std::string& warning : result.warnings) LogWarning(warning);
  const formats::smoe::ArchBlock& arch = result.arch;
  if (globals.json) {
    PrintJson({{"file", flags.file},
               {"version", 2},
               {"arch_offset", result.offset},
               {"model_type", arch.model_type},
               {"warnings", result.warnings}});
    return 0;
  }
  fmt::print("{} is a v2 vault: arch block at {}, {} heads of {} ({} KV), top-{}, theta {}\n",
             flags.file, result.offset, arch.num_heads, arch.head_dim, arch.num_kv_heads,
             arch.moe_top_k, arch.rope_theta);
  std::fflush(stdout);
  return 0;
}

}  // namespace

Action AddVault(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* upgrade = verb.add_subcommand("upgrade", "a v1 vault to v2, in place");
  upgrade->fallthrough();
  upgrade->add_option("FILE", flags->file, "the .smoe")->required();
  upgrade->add_option("--config", flags->options.config,
                      "the model's config.json, or its folder (default: what v1 means)");
  upgrade->add_option("--scout", flags->options.scout, kScoutHelp);
  upgrade->add_flag("--force", flags->options.force, "write the arch block of a v2 vault anew");
  return [=, &globals] {
    if (upgrade->parsed()) return Upgrade(*flags, globals);
    throw Error(ErrorCode::kUsage, "say what to do: vault upgrade");
  };
}

}  // namespace moewe::cli
