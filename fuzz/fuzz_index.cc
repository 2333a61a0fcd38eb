// Any bytes as a sparse index, beside any mask, for a model of any small size: they parse or they
// throw moewe::Error, and an index that agrees with the masks is what the masks say.
//
// Input: layers, neurons (two bytes), heads, loops and the length of the mask's bits in units of 8,
// a byte each; the bits; the index.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "formats/cmf/masks.h"
#include "formats/cmf/sparse_index.h"
#include "moewe/error.h"

namespace {

namespace cmf = moewe::formats::cmf;
using moewe::Bytes;

const std::string kPath = "fuzz";

void Require(bool holds) {
  if (!holds) std::abort();
}

// Two masks, task 0 with the bits from the input (zeros behind them), task 1 with all of them set.
cmf::MaskCatalog Masks(Bytes bits, const cmf::Header& header) {
  const auto rows = [](uint64_t count, uint64_t width, std::vector<uint8_t>* blob,
                       const auto& next) {
    for (uint64_t row = 0; row < count; ++row) {
      for (uint64_t i = 0; i < cmf::MaskBytes(width); ++i) {
        const bool last = i + 1 == cmf::MaskBytes(width) && width % 8 != 0;
        blob->push_back(static_cast<uint8_t>(next() & (last ? (1 << (width % 8)) - 1 : 0xff)));
      }
    }
  };
  const auto blob_of = [&](const auto& next) {
    std::vector<uint8_t> blob;
    rows(header.num_layers * header.num_loops, header.intermediate_size, &blob, next);
    rows(header.num_layers, header.num_attention_heads, &blob, next);
    rows(1, header.num_layers, &blob, next);
    return blob;
  };
  size_t at = 0;
  const std::vector<std::vector<uint8_t>> blobs = {
      blob_of([&]() -> int { return at < bits.size() ? bits[at++] : 0; }),
      blob_of([]() -> int { return 0xff; })};
  static std::vector<uint8_t> section;  // what is returned points into it
  const moewe::Json meta = {{"masks",
                             {{{"task_id", 0}, {"name", "a"}, {"priority", "Normal"}},
                              {{"task_id", 1}, {"name", "b"}, {"priority", "Normal"}}}}};
  section = cmf::SerializeMasks(meta, blobs);
  cmf::Envelope envelope;
  envelope.masks = {0, section.size()};
  return cmf::ParseMasks(section, envelope, header, kPath);
}

// The definition, written another way round: the groups with a live neuron.
void CheckAgainst(const cmf::SparseEntry& entry, const cmf::MaskCatalog& masks,
                  const cmf::Header& header) {
  Require(entry.task_id < masks.masks.size() && entry.layer < header.num_layers);
  const cmf::TaskMask& mask = masks.masks[entry.task_id];
  for (uint64_t head = 0; head < header.num_attention_heads; ++head) {
    const bool listed =
        std::count(entry.heads.begin(), entry.heads.end(), static_cast<uint8_t>(head)) == 1;
    Require(cmf::MaskBit(mask.head_rows[entry.layer], head) == listed);
  }
  if (header.num_loops != 1) return;
  std::vector<bool> live(header.intermediate_size / 32 + 1, false);
  for (uint64_t i = 0; i < header.intermediate_size; ++i) {
    if (cmf::MaskBit(mask.ffn_rows[entry.layer], i)) live[i / 32] = true;
  }
  for (size_t group = 0; group < live.size(); ++group) {
    const bool listed = std::count(entry.ffn_groups.begin(), entry.ffn_groups.end(),
                                   static_cast<uint16_t>(group)) == 1;
    Require(live[group] == listed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kHead = 6;
  if (size < kHead) return 0;
  cmf::Header header;
  header.num_layers = data[0] % 8 + 1u;
  header.intermediate_size = (data[1] + 256u * data[2]) % 300 + 1;
  header.num_attention_heads = data[3] % 32 + 1u;
  header.num_loops = data[4] % 3 + 1u;
  const Bytes rest(data + kHead, size - kHead);
  const Bytes bits = rest.first(std::min<size_t>(data[5] * 8u, rest.size()));
  const Bytes index = rest.subspan(bits.size());
  cmf::Envelope envelope;
  envelope.index = {0, index.size()};
  try {
    const auto entries = cmf::ParseSparseIndex(index, envelope, kPath);
    const cmf::MaskCatalog masks = Masks(bits, header);
    cmf::CheckSparseIndex(entries, masks, header, {kPath, "index", 0});
    for (const cmf::SparseEntry& entry : entries) CheckAgainst(entry, masks, header);
    Require(entries.size() <= masks.masks.size() * header.num_layers);
  } catch (const moewe::Error&) {
  }
  return 0;
}
