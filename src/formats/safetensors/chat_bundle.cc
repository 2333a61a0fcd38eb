#include "formats/safetensors/chat_bundle.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/utf8.h"
#include "moewe/error.h"
#include "platform/file_io.h"
#include "platform/paths.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

// Side files beyond this are no configs.
constexpr uint64_t kSideFileLimit = uint64_t{256} << 20;

constexpr std::array kSpecialTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
constexpr std::array kGenerationKeys = {"do_sample",
                                        "temperature",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "typical_p",
                                        "repetition_penalty",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "max_new_tokens"};

// A token as configs write it: a string, or an object with its "content".
std::optional<std::string> TokenText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

const Json& Member(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

class BundleBuilder {
 public:
  BundleBuilder(const std::string& folder, const Json& config, Bytes tokenizer_json)
      : folder_(folder),
        config_(config),
        tokenizer_json_(tokenizer_json),
        tokenizer_config_(ReadFolderJson(folder, "tokenizer_config.json")),
        special_tokens_map_(ReadFolderJson(folder, "special_tokens_map.json")),
        generation_config_(ReadFolderJson(folder, "generation_config.json")) {}

  Json Build() {
    AddTemplate();
    AddSpecialTokens();
    AddIds();
    AddGeneration();
    return bundle_;
  }

 private:
  void AddTemplate() {
    if (fs::exists(fs::path(folder_) / "chat_template.jinja")) {
      const std::string path = (fs::path(folder_) / "chat_template.jinja").string();
      const std::vector<uint8_t> bytes = ReadWholeFile(path, kSideFileLimit);
      if (!IsUtf8(bytes)) throw Error(ErrorCode::kParse, "is not UTF-8", {path, ""});
      bundle_["chat_template"] = std::string(bytes.begin(), bytes.end());
      return;
    }
    if (AddTemplateOf(Member(tokenizer_config_, "chat_template"), "tokenizer_config.json")) return;
    const Json file = ReadFolderJson(folder_, "chat_template.json");
    AddTemplateOf(file.is_string() ? file : Member(file, "chat_template"), "chat_template.json");
  }

  // A template, a list of {"name", "template"}, or an object of names and templates.
  bool AddTemplateOf(const Json& value, const char* file) {
    if (value.is_null()) return false;
    std::vector<std::pair<std::string, std::string>> named;
    if (value.is_string()) {
      named.emplace_back("default", value.get<std::string>());
    } else if (value.is_array()) {
      for (const Json& item : value) {
        const Json& name = Member(item, "name");
        const Json& text = Member(item, "template");
        if (name.is_string() && text.is_string()) named.emplace_back(name, text);
      }
    } else if (value.is_object()) {
      for (const auto& [name, text] : value.items()) {
        if (text.is_string()) named.emplace_back(name, text);
      }
    }
    for (const auto& [name, text] : named) {
      if (name != "default" && named.size() > 1) continue;
      bundle_["chat_template"] = text;
      return true;
    }
    throw Error(ErrorCode::kParse, "names no default template",
                {(fs::path(folder_) / file).string(), "chat_template"});
  }

  void AddSpecialTokens() {
    for (const char* key : kSpecialTokens) {
      std::optional<std::string> text = TokenText(Member(tokenizer_config_, key));
      if (!text) text = TokenText(Member(special_tokens_map_, key));
      if (text) bundle_[key] = *text;
    }
    for (const Json* source : {&tokenizer_config_, &special_tokens_map_}) {
      const Json& list = Member(*source, "additional_special_tokens");
      if (!list.is_array() || bundle_.contains("additional_special_tokens")) continue;
      Json texts = Json::array();
      for (const Json& item : list) {
        if (const auto text = TokenText(item)) texts.push_back(*text);
      }
      if (!texts.empty()) bundle_["additional_special_tokens"] = std::move(texts);
    }
    // Model-specific tokens ({"image_token": "<image>"}) are template variables too.
    const Json& extra = Member(tokenizer_config_, "extra_special_tokens");
    if (!extra.is_object()) return;
    for (const auto& [key, value] : extra.items()) {
      const auto text = TokenText(value);
      if (text && !bundle_.contains(key)) bundle_[key] = *text;
    }
  }

  // The id of a token's text, from the tokenizer's added tokens.
  std::optional<uint64_t> TokenId(const Json& text) const {
    if (!text.is_string()) return std::nullopt;
    const Json& decoder = Member(tokenizer_config_, "added_tokens_decoder");
    if (decoder.is_object()) {
      for (const auto& [id, token] : decoder.items()) {
        if (Member(token, "content") != text) continue;
        if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != id.npos) continue;
        return std::stoull(id);
      }
      return std::nullopt;
    }
    if (tokenizer_json_.empty()) return std::nullopt;
    const Json tokenizer =
        ParseJson(tokenizer_json_, (fs::path(folder_) / "tokenizer.json").string(), "", 0,
                  {.duplicate_keys = JsonOptions::DuplicateKeys::kLastWins});
    for (const Json& token : Member(tokenizer, "added_tokens")) {
      if (Member(token, "content") == text && Member(token, "id").is_number_unsigned()) {
        return Member(token, "id").get<uint64_t>();
      }
    }
    return std::nullopt;
  }

  void AddIds() {
    std::vector<uint64_t> eos;
    const auto add = [&eos](const Json& id) {
      if (!id.is_number_unsigned()) return;
      if (std::find(eos.begin(), eos.end(), id.get<uint64_t>()) == eos.end()) eos.push_back(id);
    };
    const auto add_all = [&add](const Json& ids) {
      if (!ids.is_array()) return add(ids);
      for (const Json& id : ids) add(id);
    };
    add_all(Member(config_, "eos_token_id"));
    add_all(Member(Member(config_, "text_config"), "eos_token_id"));
    add_all(Member(generation_config_, "eos_token_id"));
    if (const auto id = TokenId(Member(bundle_, "eos_token"))) add(*id);
    if (!eos.empty()) bundle_["eos_token_ids"] = eos;

    AddId("bos_token_id", "bos_token");
    AddId("pad_token_id", "pad_token");
  }

  void AddId(const char* id_key, const char* token_key) {
    const std::array<const Json*, 3> sources = {&generation_config_, &config_,
                                                &Member(config_, "text_config")};
    for (const Json* source : sources) {
      const Json& id = Member(*source, id_key);
      if (!id.is_number_unsigned()) continue;
      bundle_[id_key] = id;
      return;
    }
    if (const auto id = TokenId(Member(bundle_, token_key))) bundle_[id_key] = *id;
  }

  void AddGeneration() {
    Json generation = Json::object();
    for (const char* key : kGenerationKeys) {
      const Json& value = Member(generation_config_, key);
      if (value.is_number() || value.is_boolean()) generation[key] = value;
    }
    if (!generation.empty()) bundle_["generation"] = std::move(generation);
  }

  const std::string& folder_;
  const Json& config_;
  Bytes tokenizer_json_;
  Json tokenizer_config_;
  Json special_tokens_map_;
  Json generation_config_;
  Json bundle_;
};

}  // namespace

Json ReadFolderJson(const std::string& folder, const std::string& name) {
  const std::string path = (fs::path(folder) / name).string();
  if (!PathExists(path)) return nullptr;
  return ParseJson(ReadWholeFile(path, kSideFileLimit), path, "", 0,
                   {.duplicate_keys = JsonOptions::DuplicateKeys::kLastWins});
}

Json BuildChatBundle(const std::string& folder, const Json& config, Bytes tokenizer_json) {
  return BundleBuilder(folder, config, tokenizer_json).Build();
}

}  // namespace moewe::formats
