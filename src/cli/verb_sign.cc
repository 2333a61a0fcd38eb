// moewe sign: vouches for a model file with a signature beside it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

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
  key.Sign(flags.path, [](uint64_t, uint64_t) {});
  const std::string signature = formats::SignaturePath(flags.path);
  if (globals.json) {
    PrintJson({{"signature", signature}, {"pubkey", key.PublicKey()}, {"new_key", flags.new_key}});
    return 0;
  }
  if (flags.new_key) {
    std::fprintf(stderr, "new key %s: keep it private; who has it can sign as you\n",
                 flags.key.c_str());
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
