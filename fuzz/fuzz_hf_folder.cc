// A Hugging Face folder of any files: index, shards, configs and chat files are read or refused.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "formats/safetensors/hf_folder.h"
#include "moewe/error.h"
#include "scratch_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The order is make_corpus.py's, too.
  static constexpr std::array kNames = {"config.json",
                                        "model.safetensors.index.json",
                                        "model.safetensors",
                                        "a.safetensors",
                                        "b.safetensors",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "generation_config.json",
                                        "chat_template.jinja",
                                        "chat_template.json"};
  static moewe::fuzz::ScratchFolder folder;
  folder.Fill({data, size}, kNames);
  try {
    const auto checkpoint = moewe::formats::HfFolder::Open(folder.path());
    for (const moewe::formats::TensorView& tensor : checkpoint->tensors()) {
      if (checkpoint->Find(tensor.name) != &tensor) std::abort();
    }
    checkpoint->chat_bundle().dump();
  } catch (const moewe::Error&) {
  }
  return 0;
}
