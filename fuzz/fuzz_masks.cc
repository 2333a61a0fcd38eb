// Any bytes as what masks are made of -- a masks section, a sparse index, a .npy array, a JSON
// description -- for a model of any small size: they parse or they throw moewe::Error, and what
// parses has the sizes of the model.
//
// Input: layers, neurons, heads, loops, experts and the kind of the rest, a byte each; the rest.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/json.h"
#include "convert/mask_description.h"
#include "formats/cmf/masks.h"
#include "formats/cmf/sparse_index.h"
#include "formats/npy.h"
#include "moewe/error.h"

namespace {

namespace cmf = moewe::formats::cmf;
using moewe::Bytes;
using moewe::convert::MaskDescription;
using moewe::convert::MaskPart;

const std::string kPath = "fuzz";

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckSizes(const cmf::TaskMask& mask, const cmf::Header& header) {
  Require(mask.head_rows.size() == header.num_layers);
  Require(mask.layer_gates.size() == header.num_layers);
  Require(mask.ffn_rows.size() == header.num_layers ||
          mask.ffn_rows.size() == header.num_layers * header.num_loops);
  Require(mask.expert_rows.empty() || mask.expert_rows.size() == header.num_layers);
  for (const Bytes row : mask.ffn_rows) Require(cmf::LiveBits(row) <= header.intermediate_size);
  for (const Bytes row : mask.head_rows) Require(cmf::LiveBits(row) <= header.num_attention_heads);
  for (const Bytes row : mask.expert_rows) Require(cmf::LiveBits(row) <= header.num_experts);
}

cmf::MaskCatalog ParseMasks(Bytes section, const cmf::Header& header) {
  cmf::Envelope envelope;
  envelope.masks = {0, section.size()};
  cmf::MaskCatalog catalog = cmf::ParseMasks(section, envelope, header, kPath);
  for (const cmf::TaskMask& mask : catalog.masks) CheckSizes(mask, header);
  return catalog;
}

void ParseIndex(Bytes section, const cmf::Header& header) {
  cmf::Envelope envelope;
  envelope.index = {0, section.size()};
  const auto entries = cmf::ParseSparseIndex(section, envelope, kPath);
  cmf::CheckSparseIndex(entries, ParseMasks({}, header), header, {kPath, "index", 0});
}

// What was described can be stored and is read back with the sizes of the model.
void CheckDescription(const MaskDescription& mask, const cmf::Header& header) {
  const std::vector<uint8_t> blob = mask.rows.Blob();
  moewe::Json meta = {{"masks", {{{"task_id", 0}, {"name", "m"}, {"blob_len", blob.size()}}}}};
  if (!mask.rows.experts.empty()) meta["masks"][0]["has_expert_fields"] = true;
  Require(ParseMasks(cmf::SerializeMasks(meta, {blob}), header).masks.size() == 1);
}

void Parse(int kind, Bytes rest, const cmf::Header& header) {
  constexpr std::array kParts = {MaskPart::kFfn, MaskPart::kHeads, MaskPart::kLayers,
                                 MaskPart::kExperts};
  if (kind == 0) {
    ParseMasks(rest, header);
  } else if (kind == 1) {
    ParseIndex(rest, header);
  } else if (kind == 2) {
    MaskDescription mask(header);
    moewe::convert::DescribeByJson(moewe::ParseJson(rest, kPath, "mask"), header, kPath, &mask);
    CheckDescription(mask, header);
  } else {
    MaskDescription mask(header);
    const auto array = moewe::formats::ParseNpyBits(rest, kPath);
    moewe::convert::DescribeByNpy(array, kParts[static_cast<size_t>(kind - 3) % 4], header, kPath,
                                  &mask);
    CheckDescription(mask, header);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kHead = 6;
  if (size < kHead) return 0;
  cmf::Header header;
  header.num_layers = data[0] % 16 + 1u;
  header.intermediate_size = data[1];
  header.num_attention_heads = data[2] % 32 + 1u;
  header.num_loops = data[3] % 4 + 1u;
  header.num_experts = data[4] % 64;
  try {
    Parse(data[5] % 7, {data + kHead, size - kHead}, header);
  } catch (const moewe::Error&) {
  }
  return 0;
}
