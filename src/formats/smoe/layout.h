// The records of a .smoe vault as they lie in the file: little-endian, packed, most fields
// unaligned.
//
// Source: the .smoe format document; docs/formats/smoe.md repeats it with what it leaves open.
#ifndef MOEWE_FORMATS_SMOE_LAYOUT_H_
#define MOEWE_FORMATS_SMOE_LAYOUT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
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
  uint32_t flags = 0;
  float rope_theta = 0.0f;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t moe_top_k = 0;
  uint32_t moe_ffn_dim = 0;
  uint32_t dense_ffn_dim = 0;
  uint32_t shared_expert_ffn_dim = 0;
  uint32_t num_hidden_layers = 0;
  float rms_norm_eps = 0.0f;
  std::string model_type;  // at most kModelTypeSize bytes are stored

  bool Has(ArchFlag flag) const { return (flags & flag) != 0; }
};

struct ExpertEntry {
  uint32_t layer_id = 0;
  uint32_t expert_id = 0;
  uint64_t byte_offset = 0;
  uint64_t raw_size = 0;
  uint64_t padded_size = 0;
  uint64_t num_groups = 0;
};

// One matrix of an expert; offsets count from the blob.
struct TensorDescriptor {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t packed_offset = 0;
  uint64_t packed_size = 0;
  uint64_t scales_offset = 0;
  uint64_t scales_size = 0;
};

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
