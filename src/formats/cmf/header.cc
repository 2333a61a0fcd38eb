#include "formats/cmf/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "formats/cmf/limits.h"
#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

// Above every real model and far from overflowing a product of two.
constexpr uint64_t kLargestSize = std::numeric_limits<uint32_t>::max() / 2;

constexpr std::array<std::string_view, 5> kLayerTypes = {"FullAttention", "LinearAttention",
                                                         "SlidingAttention", "ShortConv", "Kda"};

class HeaderReader {
 public:
  HeaderReader(Json json, const std::string& path) : path_(path) { header_.json = std::move(json); }

  Header Read() {
    const Json& root = header_.json;
    if (!root.is_object()) Fail("", "is no object");
    if (const Json& format = Get(root, "format"); !format.is_null() && format != "cmf") {
      Fail("format", "is not \"cmf\"");
    }
    if (Unsigned(root, "version", "") != kVersion) Fail("version", "is not 2");
    if (!Get(root, "quant_type").is_string()) Fail("quant_type", "is required and a string");
    ReadArch(Get(root, "arch"));
    ReadShard(Get(root, "shard"));
    ReadSkills(Get(root, "skills"));
    for (const char* key : {"tokenizer_config", "section_hashes"}) {
      const Json& value = Get(root, key);
      if (!value.is_null() && !value.is_object()) Fail(key, "is no object");
    }
    return std::move(header_);
  }

 private:
  [[noreturn]] void Fail(const std::string& key, const std::string& problem) const {
    throw Error(ErrorCode::kParse, fmt::format("header field '{}' {}", key, problem),
                {path_, key.empty() ? "header" : "header." + key});
  }

  static const Json& Get(const Json& object, const char* key) {
    static const Json kNull;
    const auto it = object.find(key);
    return it == object.end() ? kNull : *it;
  }

  uint64_t Unsigned(const Json& object, const char* key, const std::string& prefix) const {
    const Json& value = Get(object, key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargestSize) {
      Fail(prefix + key, "is required and an integer from 0 to 2^31");
    }
    return value.get<uint64_t>();
  }

  void ReadArch(const Json& arch) {
    if (!arch.is_object()) Fail("arch", "is required and an object");
    if (!Get(arch, "arch_name").is_string()) Fail("arch.arch_name", "is required and a string");
    for (const char* key :
         {"hidden_size", "num_kv_heads", "head_dim", "vocab_size", "max_position_embeddings"}) {
      Unsigned(arch, key, "arch.");
    }
    header_.intermediate_size = Unsigned(arch, "intermediate_size", "arch.");
    header_.num_layers = Unsigned(arch, "num_layers", "arch.");
    header_.num_attention_heads = Unsigned(arch, "num_attention_heads", "arch.");
    if (!Get(arch, "rms_norm_eps").is_number()) {
      Fail("arch.rms_norm_eps", "is required and a number");
    }
    const Json& types = Get(arch, "layer_types");
    if (!types.is_array() || types.size() != header_.num_layers) {
      Fail("arch.layer_types", "is required and a list with one entry a layer");
    }
    for (const Json& type : types) {
      if (!type.is_string() || std::find(kLayerTypes.begin(), kLayerTypes.end(),
                                         type.get_ref<const std::string&>()) == kLayerTypes.end()) {
        Fail("arch.layer_types", "has an unknown layer type " +
                                     type.dump(-1, ' ', false, Json::error_handler_t::replace));
      }
    }
    if (!Get(arch, "num_loops").is_null()) header_.num_loops = Unsigned(arch, "num_loops", "arch.");
    if (header_.num_loops == 0 || header_.num_loops > kMaxLoops) {
      Fail("arch.num_loops", fmt::format("is not from 1 to {}", kMaxLoops));
    }
    const Json& moe = Get(arch, "moe");
    if (moe.is_null()) return;
    if (!moe.is_object()) Fail("arch.moe", "is no object");
    header_.num_experts = Unsigned(moe, "num_experts", "arch.moe.");
    Unsigned(moe, "top_k", "arch.moe.");
  }

  void ReadShard(const Json& shard) {
    if (shard.is_null()) return;
    if (!shard.is_object()) Fail("shard", "is no object");
    const uint64_t no = Unsigned(shard, "no", "shard.");
    const uint64_t count = Unsigned(shard, "count", "shard.");
    if (no == 0 || no > count || count > 99999) Fail("shard", "does not hold 1 <= no <= count");
    header_.shard = ShardBlock{static_cast<uint32_t>(no), static_cast<uint32_t>(count)};
  }

  void ReadSkills(const Json& skills) {
    const uint64_t hidden_size = Unsigned(header_.json["arch"], "hidden_size", "arch.");
    header_.skills = ParseSkills(skills, {hidden_size, header_.num_layers}, path_);
    header_.standalone_skill = std::any_of(header_.skills.begin(), header_.skills.end(),
                                           [](const SkillRecord& s) { return s.standalone(); });
  }

  const std::string& path_;
  Header header_;
};

}  // namespace

Header ParseHeader(Bytes file, const Envelope& envelope, const std::string& path) {
  Json json =
      ParseJson(SectionBytes(file, envelope.header), path, "header", envelope.header.offset);
  return HeaderReader(std::move(json), path).Read();
}

std::optional<uint64_t> SectionHash(const Json& header, const std::string& section,
                                    const std::string& path) {
  const auto hashes = header.find("section_hashes");
  if (hashes == header.end() || !hashes->is_object()) return std::nullopt;
  const auto it = hashes->find(section);
  if (it == hashes->end() || it->is_null()) return std::nullopt;
  uint64_t hash = 0;
  bool valid = it->is_string() && it->get_ref<const std::string&>().size() == 16;
  for (const char digit : valid ? it->get<std::string>() : std::string()) {
    const size_t value = std::string_view("0123456789abcdef").find(digit);
    valid = valid && value != std::string_view::npos;
    hash = hash << 4 | (value & 15);
  }
  if (!valid) {
    throw Error(ErrorCode::kHashMismatch, "the stored hash is not 16 lower-case hex digits",
                {path, "header.section_hashes." + section});
  }
  if (hash == 0) return std::nullopt;
  return hash;
}

}  // namespace moewe::formats::cmf
