// A checkpoint made of bytes in memory, for tests and fuzzing of what reads checkpoints.
#ifndef MOEWE_TESTS_MEMORY_CHECKPOINT_H_
#define MOEWE_TESTS_MEMORY_CHECKPOINT_H_

#include <cstring>
#include <list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"

namespace moewe {

class MemoryCheckpoint : public formats::Checkpoint {
 public:
  MemoryCheckpoint(formats::CheckpointKind kind, nlohmann::ordered_json config)
      : kind_(kind), config_(std::move(config)) {}

  // Views point into the storage, which moving keeps in place.
  MemoryCheckpoint(MemoryCheckpoint&&) = default;

  // f32, f16 or bf16, dense.
  void Add(std::string name, DType dtype, std::vector<uint64_t> shape, std::vector<uint8_t> bytes) {
    formats::TensorView view;
    view.name = std::move(name);
    view.dtype = dtype;
    view.shape = std::move(shape);
    storage_.push_back(std::move(bytes));
    view.bytes = Bytes(storage_.back());
    tensors_.push_back(std::move(view));
  }

  // Elements 0, 1, 2, ... as f32.
  void AddCounting(const std::string& name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t size : shape) count *= size;
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0f);
    // An empty tensor has no address, which memcpy would not take.
    const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
    Add(name, DType::kF32, std::move(shape), {begin, begin + count * sizeof(float)});
  }

  // All tensors of a (trusted) safetensors file.
  void AddSafetensors(const std::vector<uint8_t>& file) {
    uint64_t header_size = 0;
    std::memcpy(&header_size, file.data(), sizeof(header_size));
    const auto begin = file.begin() + 8;
    const auto data = begin + static_cast<ptrdiff_t>(header_size);
    const auto header = nlohmann::ordered_json::parse(begin, data);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const std::string dtype = entry["dtype"];
      const auto offsets = entry["data_offsets"].get<std::vector<ptrdiff_t>>();
      Add(name,
          dtype == "F32"   ? DType::kF32
          : dtype == "F16" ? DType::kF16
                           : DType::kBf16,
          entry["shape"].get<std::vector<uint64_t>>(), {data + offsets[0], data + offsets[1]});
    }
  }

  formats::CheckpointKind kind() const override { return kind_; }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<formats::TensorView>& tensors() const override { return tensors_; }
  const formats::TensorView* Find(std::string_view name) const override {
    for (const formats::TensorView& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  const nlohmann::ordered_json& config() const override { return config_; }
  Bytes tokenizer_json() const override { return {}; }
  const nlohmann::ordered_json& chat_bundle() const override { return none_; }

 private:
  formats::CheckpointKind kind_;
  nlohmann::ordered_json config_;
  nlohmann::ordered_json none_;
  std::vector<std::string> files_ = {"memory"};
  std::list<std::vector<uint8_t>> storage_;
  std::vector<formats::TensorView> tensors_;
};

}  // namespace moewe

#endif  // MOEWE_TESTS_MEMORY_CHECKPOINT_H_
