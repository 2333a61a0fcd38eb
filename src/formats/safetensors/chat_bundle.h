// The chat bundle of CMF section 6.1, put together from the files of a Hugging Face folder.
#ifndef MOEWE_FORMATS_SAFETENSORS_CHAT_BUNDLE_H_
#define MOEWE_FORMATS_SAFETENSORS_CHAT_BUNDLE_H_

#include <string>

#include "base/json.h"

namespace moewe::formats {

// Keys, each only if the folder says something about it:
//   chat_template    chat_template.jinja, else tokenizer_config.json (of several named ones
//   "default"), else
//                    chat_template.json
//   eos_token_ids    union of config.json, generation_config.json and the tokenizer's eos_token, in
//   this order bos_token_id, pad_token_id   generation_config.json, else config.json, else the
//   tokenizer's token generation       sampling defaults of generation_config.json (temperature,
//   top_k, ...) bos_token, eos_token, ... additional_special_tokens   what templates may refer to
// Null if there is nothing at all. `config` is the parsed config.json, `tokenizer_json` may be
// empty. Throws Error{kParse} for a file that is there but malformed.
Json BuildChatBundle(const std::string& folder, const Json& config, Bytes tokenizer_json);

// A JSON object of a folder; null JSON if there is no such file. Keys given twice: the last counts,
// as in Python.
Json ReadFolderJson(const std::string& folder, const std::string& name);

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_SAFETENSORS_CHAT_BUNDLE_H_
