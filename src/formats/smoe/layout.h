// The records of a .smoe vault as they lie in the file: little-endian, packed, most fields
// unaligned.
//
// Source: the .smoe format document; docs/formats/smoe.md repeats it with what it leaves open.
#ifndef MOEWE_FORMATS_SMOE_LAYOUT_H_
#define MOEWE_FORMATS_SMOE_LAYOUT_H_

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quant/dtype.h"

namespace moewe::formats::smoe {

inline constexpr std::string_view kMagic{"SMOE\xDE\xEA\x00\x01", 8};
inline constexpr std::string_view kArchMagic = "SARC";
inline constexpr uint64_t kHeaderSize = 64;
inline constexpr uint64_t kEntrySize = 48;
inline constexpr uint64_t kDescriptorSize = 44;
inline constexpr uint64_t kArchSize = 128;
inline constexpr uint64_t kArchAlignment = 64;
inline constexpr uint64_t kPage = 16384;  // blobs start and end on multiples of it
inline constexpr uint32_t kGroupSize = 64;
inline constexpr uint32_t kMaxTopK = 16;
inline constexpr uint32_t kMaxHeadDim = 256;
inline constexpr size_t kModelTypeSize = 24;

// Where fields are that `vault upgrade` changes in place.
inline constexpr uint64_t kVersionOffset = 8;
inline constexpr uint64_t kReservedExtOffset = 60;

struct Header {
  uint32_t version = 2;
  uint32_t num_moe_layers = 0;
  uint32_t max_experts_per_layer = 0;
  uint32_t total_experts = 0;
  uint64_t table_offset = kHeaderSize;
  uint64_t data_offset = 0;
  uint32_t group_size = kGroupSize;
  uint32_t bits = 4;
  uint32_t d_model = 0;
  uint32_t vocab_size = 0;
  uint32_t ffn_dim = 0;  // not to be relied on: existing writers store d_model here
  uint32_t reserved_ext = 0;
};

enum ArchFlag : uint32_t { kNormTopk = 1, kHasQkNorm = 2, kHasDenseLayer0 = 4 };

struct ArchBlock {
  uint32_t block_version = 1;
  uint32_t block_size = kArchSize;
  uint32_t flags = 0;
  float rope_theta = 0.0f;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t moe_top_k = 0;
  uint32_t moe_ffn_dim = 0;
  uint32_t dense_ffn_dim = 0;
  uint32_t shared_expert_ffn_dim = 0;
  uint32_t activation = 0;  // SiLU
  uint32_t num_hidden_layers = 0;
  float rms_norm_eps = 0.0f;
  std::string model_type;  // at most kModelTypeSize bytes are stored

  bool Has(ArchFlag flag) const { return (flags & flag) != 0; }
  void Set(ArchFlag flag, bool on) {
    flags = on ? flags | flag : flags & ~static_cast<uint32_t>(flag);
  }
};

struct ExpertEntry {
  uint32_t layer_id = 0;
  uint32_t expert_id = 0;
  uint64_t byte_offset = 0;
  uint64_t raw_size = 0;
  uint64_t padded_size = 0;
  uint32_t group_size = kGroupSize;
  uint64_t num_groups = 0;
  uint32_t reserved = 0;
};

// One matrix of an expert; offsets count from the blob.
struct TensorDescriptor {
  uint8_t tensor_type = 0;  // index into kProjections
  uint8_t ndim = 2;
  uint16_t reserved_0 = 0;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t packed_offset = 0;
  uint64_t packed_size = 0;
  uint64_t scales_offset = 0;
  uint64_t scales_size = 0;
};

// The fields of a record in the order of the file, without gaps: visit(name, field). Reading,
// writing and listing a record are one walk each. Before a header's and an arch block's fields
// comes the magic, behind the arch block's the model_type.
template <typename Record, typename Visit>
  requires std::same_as<std::remove_const_t<Record>, Header>
void VisitFields(Record& header, Visit visit) {
  visit("version", header.version);
  visit("num_moe_layers", header.num_moe_layers);
  visit("max_experts_per_layer", header.max_experts_per_layer);
  visit("total_experts", header.total_experts);
  visit("table_offset", header.table_offset);
  visit("data_offset", header.data_offset);
  visit("group_size", header.group_size);
  visit("bits", header.bits);
  visit("d_model", header.d_model);
  visit("vocab_size", header.vocab_size);
  visit("ffn_dim", header.ffn_dim);
  visit("reserved_ext", header.reserved_ext);
}

template <typename Record, typename Visit>
  requires std::same_as<std::remove_const_t<Record>, ArchBlock>
void VisitFields(Record& arch, Visit visit) {
  visit("block_version", arch.block_version);
  visit("block_size", arch.block_size);
  visit("flags", arch.flags);
  visit("rope_theta", arch.rope_theta);
  visit("num_heads", arch.num_heads);
  visit("num_kv_heads", arch.num_kv_heads);
  visit("head_dim", arch.head_dim);
  visit("moe_top_k", arch.moe_top_k);
  visit("moe_ffn_dim", arch.moe_ffn_dim);
  visit("dense_ffn_dim", arch.dense_ffn_dim);
  visit("shared_expert_ffn_dim", arch.shared_expert_ffn_dim);
  visit("activation", arch.activation);
  visit("num_hidden_layers", arch.num_hidden_layers);
  visit("rms_norm_eps", arch.rms_norm_eps);
}

template <typename Record, typename Visit>
  requires std::same_as<std::remove_const_t<Record>, ExpertEntry>
void VisitFields(Record& entry, Visit visit) {
  visit("layer_id", entry.layer_id);
  visit("expert_id", entry.expert_id);
  visit("byte_offset", entry.byte_offset);
  visit("raw_size", entry.raw_size);
  visit("padded_size", entry.padded_size);
  visit("group_size", entry.group_size);
  visit("num_groups", entry.num_groups);
  visit("reserved", entry.reserved);
}

template <typename Record, typename Visit>
  requires std::same_as<std::remove_const_t<Record>, TensorDescriptor>
void VisitFields(Record& tensor, Visit visit) {
  visit("tensor_type", tensor.tensor_type);
  visit("ndim", tensor.ndim);
  visit("reserved_0", tensor.reserved_0);
  visit("rows", tensor.rows);
  visit("cols", tensor.cols);
  visit("packed_offset", tensor.packed_offset);
  visit("packed_size", tensor.packed_size);
  visit("scales_offset", tensor.scales_offset);
  visit("scales_size", tensor.scales_size);
}

inline constexpr std::array<std::string_view, 3> kProjections = {"gate_proj", "up_proj",
                                                                 "down_proj"};

struct Expert {
  ExpertEntry entry;
  std::array<TensorDescriptor, 3> tensors;  // gate, up, down
};

inline uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Of a matrix of `elements` values; never wraps.
inline uint64_t PackedSize(uint64_t elements, uint32_t bits) {
  const uint64_t per_byte = 8 / bits;
  return elements / per_byte + (elements % per_byte != 0);
}
inline uint64_t NumGroups(uint64_t elements) {
  return elements / kGroupSize + (elements % kGroupSize != 0);
}

inline DType ExpertDType(uint32_t bits) { return bits == 4 ? DType::kSmoeQ4 : DType::kSmoeQ2; }

// End of the tables, which is where the arch block may begin.
inline uint64_t TablesEnd(uint64_t experts) {
  return kHeaderSize + experts * (kEntrySize + 3 * kDescriptorSize);
}

std::array<uint8_t, kArchSize> SerializeArch(const ArchBlock& arch);

// Everything before the blobs: header, table, descriptors, arch block at header.reserved_ext, zeros
// up to header.data_offset.
std::vector<uint8_t> SerializeTables(const Header& header, const std::vector<Expert>& experts,
                                     const ArchBlock& arch);

}  // namespace moewe::formats::smoe

#endif  // MOEWE_FORMATS_SMOE_LAYOUT_H_
