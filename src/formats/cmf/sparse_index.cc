#include "formats/cmf/sparse_index.h"

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

}  // namespace moewe::formats::cmf
