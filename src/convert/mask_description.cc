#include "convert/mask_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "formats/cmf/masks.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using formats::cmf::Header;
using formats::cmf::MaskBytes;
using Row = std::vector<uint8_t>;

Row Filled(uint64_t bits, bool live) {
  Row row(static_cast<size_t>(MaskBytes(bits)), live ? uint8_t{0xff} : uint8_t{0});
  if (live && bits % 8 != 0) row.back() = static_cast<uint8_t>((1u << (bits % 8)) - 1);
  return row;
}

void SetBit(uint64_t i, bool live, Row* row) {
  uint8_t& byte = (*row)[static_cast<size_t>(i / 8)];
  const auto bit = static_cast<uint8_t>(1u << (i % 8));
  byte = live ? static_cast<uint8_t>(byte | bit) : static_cast<uint8_t>(byte & ~bit);
}

// One part of a mask: where its rows go and how wide they are.
struct Part {
  const char* key;
  uint64_t bits;
  MaskRows::Rows* rows;
};

Part PartOf(MaskPart part, const Header& header, const std::string& file, MaskRows* rows) {
  switch (part) {
    case MaskPart::kFfn:
      return {"ffn", header.intermediate_size, &rows->ffn};
    case MaskPart::kHeads:
      return {"heads", header.num_attention_heads, &rows->heads};
    case MaskPart::kLayers:
      return {"layers", header.num_layers, &rows->layers};
    case MaskPart::kExperts:
      break;
  }
  if (header.num_experts == 0) {
    throw Error(ErrorCode::kParse, "the model has no experts", {file, "experts"});
  }
  rows->experts.assign(static_cast<size_t>(header.num_layers), Filled(header.num_experts, true));
  return {"experts", header.num_experts, &rows->experts};
}

class JsonReader {
 public:
  JsonReader(const Header& header, const std::string& file) : header_(header), file_(file) {}

  void ReadPart(const Json& json, MaskPart kind, MaskRows* rows) const {
    const Part part = PartOf(kind, header_, file_, rows);
    if (kind == MaskPart::kLayers) {
      (*part.rows)[0] = ReadRow(json, part.bits, part.key);
    } else if (json.is_string()) {  // for all layers
      std::fill(part.rows->begin(), part.rows->end(), ReadRow(json, part.bits, part.key));
    } else if (json.is_array()) {
      ReadList(json, part);
    } else if (json.is_object()) {
      for (const auto& [key, row] : json.items()) {
        const std::string field = fmt::format("{}.{}", part.key, key);
        SetLayer(LayerNumber(key, field), ReadRow(row, part.bits, field), field, part);
      }
    } else {
      Fail(part.key, "is neither a word, a list of rows nor an object of them");
    }
  }

  [[noreturn]] void Fail(const std::string& field, const std::string& problem) const {
    throw Error(ErrorCode::kParse, fmt::format("'{}' {}", field, problem), {file_, field});
  }

 private:
  void ReadList(const Json& json, const Part& part) const {
    const uint64_t layers = header_.num_layers;
    if (json.size() != layers && json.size() != part.rows->size()) {
      Fail(part.key, fmt::format("has {} rows, the model {} layers", json.size(), layers));
    }
    for (size_t i = 0; i < part.rows->size(); ++i) {
      const size_t from = i % json.size();
      (*part.rows)[i] = ReadRow(json[from], part.bits, fmt::format("{}[{}]", part.key, from));
    }
  }

  // Row `number` alone, or that of a layer for all passes.
  void SetLayer(uint64_t number, const Row& row, const std::string& field, const Part& part) const {
    if (number >= header_.num_layers) {
      Fail(field, fmt::format("names no layer: the model has {}", header_.num_layers));
    }
    for (size_t i = static_cast<size_t>(number); i < part.rows->size();
         i += static_cast<size_t>(header_.num_layers)) {
      (*part.rows)[i] = row;
    }
  }

  uint64_t LayerNumber(const std::string& text, const std::string& field) const {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      Fail(field, "is no layer number");
    }
    return number;
  }

  Row ReadRow(const Json& json, uint64_t bits, const std::string& field) const {
    if (json.is_string()) return ReadWord(json.get<std::string>(), bits, field);
    if (json.is_array()) {
      const bool truths = !json.empty() && json[0].is_boolean();
      return truths ? ReadTruths(json, bits, field) : ReadIndices(json, bits, true, field);
    }
    if (json.is_object() && json.size() == 1) {
      const bool live = json.contains("live");
      if (live || json.contains("dead")) {
        return ReadIndices(json.front(), bits, live, field);
      }
    }
    Fail(field, "is no row of a mask");
  }

  Row ReadWord(const std::string& word, uint64_t bits, const std::string& field) const {
    if (word == "all" || word == "none") return Filled(bits, word == "all");
    Row row;
    if (word.size() != 2 * MaskBytes(bits)) {
      Fail(field,
           fmt::format("has {} hex digits, the row takes {}", word.size(), 2 * MaskBytes(bits)));
    }
    for (size_t i = 0; i < word.size(); i += 2) {
      uint8_t byte = 0;
      const char* begin = word.data() + i;
      const auto [end, error] = std::from_chars(begin, begin + 2, byte, 16);
      if (error != std::errc() || end != begin + 2) Fail(field, "is neither a word nor hex digits");
      row.push_back(byte);
    }
    if (bits % 8 != 0 && row.back() >> (bits % 8) != 0) {
      Fail(field, fmt::format("has bits set beyond its {} entries", bits));
    }
    return row;
  }

  Row ReadTruths(const Json& json, uint64_t bits, const std::string& field) const {
    if (json.size() != bits) {
      Fail(field, fmt::format("has {} values, the row takes {}", json.size(), bits));
    }
    Row row = Filled(bits, false);
    for (size_t i = 0; i < json.size(); ++i) {
      if (!json[i].is_boolean()) Fail(field, "mixes truth values with others");
      SetBit(i, json[i].get<bool>(), &row);
    }
    return row;
  }

  Row ReadIndices(const Json& json, uint64_t bits, bool live, const std::string& field) const {
    if (!json.is_array()) Fail(field, "is no list of indices");
    Row row = Filled(bits, !live);
    for (const Json& index : json) {
      if (!index.is_number_integer() || index.get<int64_t>() < 0 || index.get<uint64_t>() >= bits) {
        Fail(field,
             fmt::format("holds {}, which is no index from 0 to {}", index.dump(), bits - 1));
      }
      const auto i = index.get<uint64_t>();
      if (formats::cmf::MaskBit(row, i) == live) Fail(field, fmt::format("holds {} twice", i));
      SetBit(i, live, &row);
    }
    return row;
  }

  const Header& header_;
  const std::string& file_;
};

}  // namespace

MaskRows::MaskRows(const Header& header)
    : ffn(static_cast<size_t>(header.num_layers * header.num_loops),
          Filled(header.intermediate_size, true)),
      heads(static_cast<size_t>(header.num_layers), Filled(header.num_attention_heads, true)),
      layers(1, Filled(header.num_layers, true)) {}

std::vector<uint8_t> MaskRows::Blob() const {
  std::vector<uint8_t> blob;
  for (const Rows* part : {&ffn, &heads, &layers, &experts}) {
    for (const Row& row : *part) blob.insert(blob.end(), row.begin(), row.end());
  }
  return blob;
}

void CheckQuality(const Json& quality, const std::string& file) {
  if (quality.is_null()) return;
  if (!quality.is_object() || !quality.contains("metric") || !quality["metric"].is_string() ||
      !quality.contains("value") || !quality["value"].is_number()) {
    throw Error(ErrorCode::kParse,
                "'quality' is neither null (not measured) nor an object with metric and value",
                {file, "quality"});
  }
}

void DescribeByJson(const Json& json, const Header& header, const std::string& file,
                    MaskDescription* mask) {
  const JsonReader reader(header, file);
  if (!json.is_object()) reader.Fail("mask", "is no object");
  for (const auto& [key, value] : json.items()) {
    const auto string_or_null = [&](Json* out) {
      if (!value.is_string() && !value.is_null()) reader.Fail(key, "is no string");
      *out = value;
    };
    if (key == "name") {
      if (!value.is_string()) reader.Fail(key, "is no string");
      mask->name = value;
    } else if (key == "description") {
      string_or_null(&mask->description);
    } else if (key == "parent") {
      string_or_null(&mask->parent);
    } else if (key == "priority") {
      if (value != "Fallback" && value != "Normal" && value != "Primary") {
        reader.Fail(key, "is none of Fallback, Normal and Primary");
      }
      mask->priority = value;
    } else if (key == "quality") {
      CheckQuality(value, file);
      mask->quality = value;
    } else if (key == "ffn") {
      reader.ReadPart(value, MaskPart::kFfn, &mask->rows);
    } else if (key == "heads") {
      reader.ReadPart(value, MaskPart::kHeads, &mask->rows);
    } else if (key == "layers") {
      reader.ReadPart(value, MaskPart::kLayers, &mask->rows);
    } else if (key == "experts") {
      reader.ReadPart(value, MaskPart::kExperts, &mask->rows);
    } else {
      reader.Fail(key, "is not known");
    }
  }
}

void DescribeByNpy(const formats::NpyBits& array, MaskPart kind, const Header& header,
                   const std::string& file, MaskDescription* mask) {
  const Part part = PartOf(kind, header, file, &mask->rows);
  const std::vector<uint64_t>& shape = array.shape;
  const bool fits = kind == MaskPart::kLayers
                        ? shape == std::vector<uint64_t>{part.bits}
                        : shape.size() == 2 && shape[1] == part.bits &&
                              (shape[0] == header.num_layers || shape[0] == part.rows->size());
  if (!fits) {
    throw Error(ErrorCode::kParse,
                kind == MaskPart::kLayers
                    ? fmt::format("the array has shape [{}], [{}] is needed",
                                  fmt::join(shape, ", "), part.bits)
                    : fmt::format("the array has shape [{}], [{}, {}] is needed",
                                  fmt::join(shape, ", "), header.num_layers, part.bits),
                {file, part.key});
  }
  if (array.values.empty()) {
    throw Error(ErrorCode::kParse, "the model has nothing that such a row could switch",
                {file, part.key});
  }
  const size_t width = static_cast<size_t>(part.bits);
  const size_t given = array.values.size() / width;
  for (size_t r = 0; r < part.rows->size(); ++r) {
    for (size_t i = 0; i < width; ++i) {
      SetBit(i, array.values[r % given * width + i] != 0, &(*part.rows)[r]);
    }
  }
}

}  // namespace moewe::convert
