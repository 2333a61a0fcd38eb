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
  void Put(T value) {
    std::memcpy(at_, &value, sizeof(value));
    at_ += sizeof(value);
  }
  void Text(std::string_view text) {
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }

 private:
  uint8_t* at_;
};

template <typename Record>
void PutFields(const Record& record, Packer* packer) {
  VisitFields(record, [&](const char*, auto value) { packer->Put(value); });
}

}  // namespace

std::array<uint8_t, kArchSize> SerializeArch(const ArchBlock& arch) {
  std::array<uint8_t, kArchSize> block{};
  Packer packer(block.data());
  packer.Text(kArchMagic);
  PutFields(arch, &packer);
  packer.Text(std::string_view(arch.model_type).substr(0, kModelTypeSize));
  return block;
}

std::vector<uint8_t> SerializeTables(const Header& header, const std::vector<Expert>& experts,
                                     const ArchBlock& arch) {
  std::vector<uint8_t> bytes(header.data_offset);
  Packer packer(bytes.data());
  packer.Text(kMagic);
  PutFields(header, &packer);
  for (const Expert& expert : experts) PutFields(expert.entry, &packer);
  for (const Expert& expert : experts) {
    for (const TensorDescriptor& tensor : expert.tensors) PutFields(tensor, &packer);
  }
  const std::array<uint8_t, kArchSize> block = SerializeArch(arch);
  std::copy(block.begin(), block.end(), bytes.data() + header.reserved_ext);
  return bytes;
}

}  // namespace moewe::formats::smoe
