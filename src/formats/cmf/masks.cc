#include "formats/cmf/masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

class MaskParser {
 public:
  MaskParser(Bytes section, uint64_t section_offset, const Header& header, const std::string& path)
      : section_(section), offset_(section_offset), header_(header), path_(path) {}

  MaskCatalog Parse() {
    if (section_.size() < 8) Fail("masks", "the section is too short");
    // Rows without bytes would cost memory that no file pays for.
    if (header_.num_attention_heads == 0) Fail("masks", "the model has no attention heads");
    ByteReader reader(section_, path_, offset_);
    const uint64_t count = reader.U32("n_masks");
    const uint64_t meta_length = reader.U32("meta_len");
    if (meta_length > reader.remaining()) Fail("masks.meta_len", "runs past the section");
    const Json meta =
        ParseJson(reader.Take(meta_length, "masks.meta"), path_, "masks.meta", offset_ + 8);
    if (!meta.is_object() || !meta.contains("masks") || !meta["masks"].is_array()) {
      Fail("masks.meta", "has no list of masks");
    }
    unclaimed_ = reader.remaining();
    const Json& list = meta["masks"];
    if (list.size() != count) {
      Fail("masks.n_masks",
           fmt::format("says {} masks, the metadata lists {}", count, list.size()));
    }
    MaskCatalog catalog;
    if (meta.contains("default_task") && meta["default_task"].is_string()) {
      catalog.default_task = meta["default_task"];
    }
    for (size_t i = 0; i < list.size(); ++i) catalog.masks.push_back(ReadMask(list[i], i));
    catalog.meta = meta;
    return catalog;
  }

 private:
  [[noreturn]] void Fail(const std::string& field, const std::string& message) const {
    throw Error(ErrorCode::kParse, message, {path_, field, offset_});
  }

  static uint64_t Number(const Json& json, const char* key, const MaskParser& parser,
                         const std::string& field) {
    const auto it = json.find(key);
    if (it == json.end() || !it->is_number_unsigned()) {
      parser.Fail(field + "." + key, "is required and an unsigned integer");
    }
    return it->get<uint64_t>();
  }

  TaskMask ReadMask(const Json& json, size_t index) {
    const std::string field = fmt::format("masks[{}]", index);
    if (!json.is_object()) Fail(field, "is no object");
    TaskMask mask;
    mask.meta = json;
    const uint64_t task_id = Number(json, "task_id", *this, field);
    if (task_id > UINT32_MAX) Fail(field + ".task_id", "does not fit 32 bits");
    mask.task_id = static_cast<uint32_t>(task_id);
    if (!json.contains("name") || !json["name"].is_string()) {
      Fail(field + ".name", "is required and a string");
    }
    mask.name = json["name"];
    const bool has_experts =
        json.contains("has_expert_fields") && json["has_expert_fields"] == true;
    if (has_experts && header_.num_experts == 0) {
      Fail(field + ".has_expert_fields", "the model has no experts");
    }
    const uint64_t begin = Number(json, "blob_off", *this, field);
    const uint64_t length = Number(json, "blob_len", *this, field);
    const auto end = CheckedAdd(begin, length);
    if (!end || *end > section_.size()) Fail(field + ".blob_off", "the blob runs past the section");
    if (length > unclaimed_) {
      Fail(field + ".blob_len", "the blobs are longer than what is behind the metadata");
    }
    unclaimed_ -= length;
    ReadBlob(section_.subspan(static_cast<size_t>(begin), static_cast<size_t>(length)), has_experts,
             field, &mask);
    return mask;
  }

  void ReadBlob(Bytes blob, bool has_experts, const std::string& field, TaskMask* mask) const {
    // All factors are below 2^31, so that nothing here overflows.
    const uint64_t layers = header_.num_layers;
    const uint64_t ffn_bytes = MaskBytes(header_.intermediate_size);
    const uint64_t head_bytes = MaskBytes(header_.num_attention_heads);
    const uint64_t expert_bytes = has_experts ? MaskBytes(header_.num_experts) : 0;
    const uint64_t rest = layers * (head_bytes + expert_bytes) + MaskBytes(layers);
    const auto per_visit = CheckedMul(layers * ffn_bytes, header_.num_loops);
    uint64_t ffn_rows = layers;
    if (per_visit && blob.size() >= rest && blob.size() - rest == *per_visit) {
      ffn_rows = layers * header_.num_loops;
    } else if (blob.size() != layers * ffn_bytes + rest) {
      Fail(field + ".blob_len", fmt::format("{} bytes, the model's masks take {}", blob.size(),
                                            layers * ffn_bytes + rest));
    }
    mask->blob = blob;
    ByteReader reader(blob, path_, offset_);
    const auto rows = [&](uint64_t count, uint64_t bits, const char* what) {
      std::vector<Bytes> result;
      for (uint64_t i = 0; i < count; ++i) {
        const Bytes row = reader.Take(MaskBytes(bits), what);
        if (bits % 8 != 0 && row.back() >> (bits % 8) != 0) {
          Fail(field, fmt::format("{} row {} has bits set beyond its {} entries", what, i, bits));
        }
        result.push_back(row);
      }
      return result;
    };
    mask->ffn_rows = rows(ffn_rows, header_.intermediate_size, "FFN");
    mask->head_rows = rows(layers, header_.num_attention_heads, "head");
    const Bytes gates = rows(1, layers, "layer gate")[0];
    for (size_t i = 0; i < layers; ++i) {
      mask->layer_gates.push_back((gates[i / 8] >> (i % 8) & 1) != 0);
    }
    if (has_experts) mask->expert_rows = rows(layers, header_.num_experts, "expert");
  }

  Bytes section_;
  uint64_t offset_;
  const Header& header_;
  const std::string& path_;
  // Bytes behind the metadata less the blobs so far: a long list of names for one blob would cost
  // memory that no file pays for.
  uint64_t unclaimed_ = 0;
};

}  // namespace

uint64_t LiveBits(Bytes row) {
  uint64_t count = 0;
  for (const uint8_t byte : row) count += static_cast<uint64_t>(__builtin_popcount(byte));
  return count;
}

std::string MaskNames(const MaskCatalog& catalog) {
  std::string names;
  for (const TaskMask& mask : catalog.masks) {
    names += (names.empty() ? "'" : ", '") + mask.name + "'";
  }
  return names.empty() ? "the file has no masks" : "the file has " + names;
}

uint32_t MaskFeatures(bool has_masks, uint64_t num_loops) {
  if (!has_masks) return 0;
  return num_loops > 1 ? kBinaryMasks | kLoopMasks : kBinaryMasks;
}

std::vector<uint8_t> SerializeMasks(Json meta, const std::vector<std::vector<uint8_t>>& blobs) {
  constexpr size_t kHeader = 8;
  const auto align = [](size_t position) { return (position + 7) / 8 * 8; };
  std::string text;
  std::vector<uint8_t> section;
  // The places depend on the length of the text, and the text on the places: they only grow.
  for (size_t begin = 0; begin != align(kHeader + text.size());) {
    begin = align(kHeader + text.size());
    size_t position = begin;
    for (size_t i = 0; i < blobs.size(); ++i) {
      meta["masks"][i]["blob_off"] = position;
      meta["masks"][i]["blob_len"] = blobs[i].size();
      position = align(position + blobs[i].size());
    }
    text = meta.dump();
    section.assign(position, 0);
  }
  const auto put = [&section](size_t at, uint32_t value) {
    std::memcpy(section.data() + at, &value, sizeof(value));
  };
  put(0, static_cast<uint32_t>(blobs.size()));
  put(4, static_cast<uint32_t>(text.size()));
  std::copy(text.begin(), text.end(), section.begin() + kHeader);
  size_t end = kHeader + text.size();
  for (size_t i = 0; i < blobs.size(); ++i) {
    const auto at = meta["masks"][i]["blob_off"].get<size_t>();
    std::copy(blobs[i].begin(), blobs[i].end(), section.begin() + static_cast<ptrdiff_t>(at));
    end = at + blobs[i].size();
  }
  section.resize(end);
  return section;
}

MaskCatalog ParseMasks(Bytes file, const Envelope& envelope, const Header& header,
                       const std::string& path) {
  if (!envelope.masks.present()) return {};
  return MaskParser(SectionBytes(file, envelope.masks), envelope.masks.offset, header, path)
      .Parse();
}

}  // namespace moewe::formats::cmf
