#include "formats/smoe/layout.h"

#include <algorithm>
#include <cstring>

namespace moewe::formats::smoe {
namespace {

// Writes one field after the other.
class Packer {
 public:
  explicit Packer(uint8_t* at) : at_(at) {}

  template <typename T>
  Packer& Put(T value) {
    std::memcpy(at_, &value, sizeof(value));
    at_ += sizeof(value);
    return *this;
  }
  Packer& Text(std::string_view text) {
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
    return *this;
  }

 private:
  uint8_t* at_;
};

void PutHeader(const Header& header, uint8_t* out) {
  Packer(out)
      .Text(kMagic)
      .Put(header.version)
      .Put(header.num_moe_layers)
      .Put(header.max_experts_per_layer)
      .Put(header.total_experts)
      .Put(header.table_offset)
      .Put(header.data_offset)
      .Put(header.group_size)
      .Put(header.bits)
      .Put(header.d_model)
      .Put(header.vocab_size)
      .Put(header.ffn_dim)
      .Put(header.reserved_ext);
}

void PutEntry(const ExpertEntry& entry, uint8_t* out) {
  Packer(out)
      .Put(entry.layer_id)
      .Put(entry.expert_id)
      .Put(entry.byte_offset)
      .Put(entry.raw_size)
      .Put(entry.padded_size)
      .Put(kGroupSize)
      .Put(entry.num_groups);
}

void PutDescriptor(uint8_t type, const TensorDescriptor& tensor, uint8_t* out) {
  constexpr uint8_t kDimensions = 2;
  Packer(out)
      .Put(type)
      .Put(kDimensions)
      .Put(uint16_t{0})
      .Put(tensor.rows)
      .Put(tensor.cols)
      .Put(tensor.packed_offset)
      .Put(tensor.packed_size)
      .Put(tensor.scales_offset)
      .Put(tensor.scales_size);
}

}  // namespace

std::array<uint8_t, kArchSize> SerializeArch(const ArchBlock& arch) {
  std::array<uint8_t, kArchSize> block{};
  Packer(block.data())
      .Text(kArchMagic)
      .Put(uint32_t{1})
      .Put(static_cast<uint32_t>(kArchSize))
      .Put(arch.flags)
      .Put(arch.rope_theta)
      .Put(arch.num_heads)
      .Put(arch.num_kv_heads)
      .Put(arch.head_dim)
      .Put(arch.moe_top_k)
      .Put(arch.moe_ffn_dim)
      .Put(arch.dense_ffn_dim)
      .Put(arch.shared_expert_ffn_dim)
      .Put(uint32_t{0})  // SiLU
      .Put(arch.num_hidden_layers)
      .Put(arch.rms_norm_eps)
      .Text(std::string_view(arch.model_type).substr(0, kModelTypeSize));
  return block;
}

std::vector<uint8_t> SerializeTables(const Header& header, const std::vector<Expert>& experts,
                                     const ArchBlock& arch) {
  std::vector<uint8_t> bytes(header.data_offset);
  PutHeader(header, bytes.data());
  uint8_t* entry = bytes.data() + kHeaderSize;
  uint8_t* descriptor = entry + experts.size() * kEntrySize;
  for (const Expert& expert : experts) {
    PutEntry(expert.entry, entry);
    entry += kEntrySize;
    for (uint8_t type = 0; type < 3; ++type) {
      PutDescriptor(type, expert.tensors[type], descriptor);
      descriptor += kDescriptorSize;
    }
  }
  const std::array<uint8_t, kArchSize> block = SerializeArch(arch);
  std::copy(block.begin(), block.end(), bytes.data() + header.reserved_ext);
  return bytes;
}

}  // namespace moewe::formats::smoe
