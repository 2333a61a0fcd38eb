#include "formats/cmf/sparse_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

std::vector<SparseEntry> ReadEntries(ByteReader reader) {
  const uint32_t count = reader.U32("n_entries");
  reader.U32("reserved");
  std::vector<SparseEntry> entries;
  for (uint32_t i = 0; i < count; ++i) {
    SparseEntry entry;
    entry.task_id = reader.U32("task_id");
    entry.layer = reader.U32("layer_idx");
    const uint64_t groups = reader.U32("n_groups");
    const uint64_t heads = reader.U32("n_heads");
    ByteReader group_reader(reader.Take(groups * sizeof(uint16_t), "FFN groups"), "");
    while (group_reader.remaining() > 0) entry.ffn_groups.push_back(group_reader.U16("group"));
    const Bytes head_bytes = reader.Take(heads, "heads");
    entry.heads.assign(head_bytes.begin(), head_bytes.end());
    reader.Take((4 - reader.position() % 4) % 4, "padding");
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

std::vector<SparseEntry> ParseSparseIndex(Bytes file, const Envelope& envelope,
                                          const std::string& path) {
  if (!envelope.index.present()) return {};
  try {
    return ReadEntries(ByteReader(SectionBytes(file, envelope.index), path, envelope.index.offset));
  } catch (const Error& error) {
    // The section's own structure is at fault, not a place in the file.
    throw Error(ErrorCode::kParse, error.message(),
                {path, "index." + error.where().field, error.where().offset});
  }
}

namespace {

// Indices of the spans of `width` bits with a live one.
template <typename T>
std::vector<T> LiveSpans(Bytes row, uint64_t bits, uint64_t width) {
  std::vector<T> live;
  for (uint64_t begin = 0; begin < bits; begin += width) {
    for (uint64_t i = begin; i < std::min(bits, begin + width); ++i) {
      if (!MaskBit(row, i)) continue;
      live.push_back(static_cast<T>(begin / width));
      break;
    }
  }
  return live;
}

template <typename T>
bool InOrder(const std::vector<T>& list, uint64_t limit) {
  return std::is_sorted(list.begin(), list.end()) &&
         std::adjacent_find(list.begin(), list.end()) == list.end() &&
         (list.empty() || list.back() < limit);
}

}  // namespace

void CheckSparseIndex(const std::vector<SparseEntry>& entries, const MaskCatalog& masks,
                      const Header& header, const Where& where) {
  constexpr uint64_t kGroup = 32;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (size_t i = 0; i < entries.size(); ++i) {
    const SparseEntry& entry = entries[i];
    const auto fail = [&](const std::string& problem) {
      throw Error(ErrorCode::kParse, fmt::format("entry {} {}", i, problem), where);
    };
    const auto mask = std::find_if(masks.masks.begin(), masks.masks.end(),
                                   [&](const TaskMask& m) { return m.task_id == entry.task_id; });
    if (mask == masks.masks.end()) fail(fmt::format("is of the unknown task {}", entry.task_id));
    if (entry.layer >= header.num_layers) fail(fmt::format("is of layer {}", entry.layer));
    if (!seen.emplace(entry.task_id, entry.layer).second) {
      fail(fmt::format("is the second of mask '{}' and layer {}", mask->name, entry.layer));
    }
    if (!InOrder(entry.ffn_groups, (header.intermediate_size + kGroup - 1) / kGroup) ||
        !InOrder(entry.heads, header.num_attention_heads)) {
      fail("lists groups or heads out of order or out of range");
    }
    const std::string layer =
        fmt::format("differs from mask '{}' in layer {}", mask->name, entry.layer);
    if (entry.heads !=
            LiveSpans<uint8_t>(mask->head_rows[entry.layer], header.num_attention_heads, 1) ||
        (mask->ffn_rows.size() == header.num_layers &&
         entry.ffn_groups !=
             LiveSpans<uint16_t>(mask->ffn_rows[entry.layer], header.intermediate_size, kGroup))) {
      fail(layer);
    }
  }
}

}  // namespace moewe::formats::cmf
