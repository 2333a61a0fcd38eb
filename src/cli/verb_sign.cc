// moewe sign: vouches for a model file with a signature beside it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/progress.h"
#include "cli/verbs.h"
#include "formats/checkpoint.h"
#include "formats/signature.h"

namespace moewe::cli {
namespace {

struct Flags {
  std::string path;
  std::string key;
  bool new_key = false;
};

int Run(const Flags& flags, const Globals& globals) {
  formats::OpenCheckpoint(flags.path);  // what can't be opened is not worth a signature
  const formats::SigningKey key =
      flags.new_key ? formats::SigningKey::Create(flags.key) : formats::SigningKey::Read(flags.key);
  std::optional<Progress> bar;
  key.Sign(flags.path, [&](uint64_t done, uint64_t total) {
    if (!bar) bar.emplace("sign", total, globals.quiet ? nullptr : stderr);
    bar->Update(done);
  });
  bar.reset();
  const std::string signature = formats::SignaturePath(flags.path);
  if (flags.new_key) {
    LogInfo("new key " + flags.key + ": keep it private; who has it can sign as you");
  }
  if (globals.json) {
    PrintJson({{"signature", signature}, {"pubkey", key.PublicKey()}, {"new_key", flags.new_key}});
    return 0;
  }
  std::printf("%s: signed by %s\n", signature.c_str(), key.PublicKey().c_str());
  return 0;
}

}  // namespace

Action AddSign(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->path, "the model file; one file of a shard set at a time")
      ->required();
  verb.add_option("--key", flags->key, "file with the private key: 64 hex digits")->required();
  verb.add_flag("--new-key", flags->new_key, "make that file, with a random key");
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
