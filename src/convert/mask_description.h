// A new task mask, described by hand or by a program, before it becomes part of a file.
//
// JSON: {"name", "description", "priority", "parent", "quality", "ffn", "heads", "layers",
// "experts"}, all optional, unknown keys refused. "layers" is one row of layer bits; the others are
// rows by layer ("ffn" of a looped model: by visit, or by layer for all passes): a list with one
// row each, or an object from layer number to row (the rest stays live), or one of the words for
// all. A row is "all", "none", the stored bytes in hex, a list of live indices, a list of truth
// values (as long as the row is wide), {"live": [...]} or {"dead": [...]}.
//
// NumPy: an array of truth values, [layers, width], [visits, width] or, for the layers, [layers].
#ifndef MOEWE_CONVERT_MASK_DESCRIPTION_H_
#define MOEWE_CONVERT_MASK_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/cmf/header.h"
#include "formats/npy.h"

namespace moewe::convert {

enum class MaskPart : uint8_t { kFfn, kHeads, kLayers, kExperts };

// Rows of bits as section 5 stores them.
struct MaskRows {
  using Rows = std::vector<std::vector<uint8_t>>;

  // Everything live; FFN rows by visit; no expert rows.
  explicit MaskRows(const formats::cmf::Header& header);

  std::vector<uint8_t> Blob() const;

  Rows ffn, heads, layers;  // layers: one row
  Rows experts;             // empty = says nothing about experts
};

struct MaskDescription {
  explicit MaskDescription(const formats::cmf::Header& header) : rows(header) {}

  std::string name;
  Json description;  // string or null
  Json priority = "Normal";
  Json parent;   // a mask's name or null
  Json quality;  // as section 5.1 has it; null = not measured
  MaskRows rows;
};

// Fills in what `json` says. Throws Error{kParse} naming file and field: unknown keys, wrong types,
// indices out of range or twice, rows of the wrong size or number, experts of a model without any.
void DescribeByJson(const Json& json, const formats::cmf::Header& header, const std::string& file,
                    MaskDescription* mask);

// Sets one part from an array. Throws the same.
void DescribeByNpy(const formats::NpyBits& array, MaskPart part, const formats::cmf::Header& header,
                   const std::string& file, MaskDescription* mask);

// Throws Error{kParse} unless `quality` is null or an object with a metric and a number as value.
void CheckQuality(const Json& quality, const std::string& file);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_MASK_DESCRIPTION_H_
