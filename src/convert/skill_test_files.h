// A fine-tuned checkpoint of a golden model, for tests of skills.
#ifndef MOEWE_CONVERT_SKILL_TEST_FILES_H_
#define MOEWE_CONVERT_SKILL_TEST_FILES_H_

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "formats/cmf/cmf_file.h"
#include "formats/cmf/writer.h"
#include "golden.h"
#include "quant/codec.h"
#include "thrown.h"

namespace moewe::convert {

inline std::string GoldenFile(const std::string& name) {
  return golden::Path("cmf/files/" + name + ".cmf").string();
}

// `source` again, with other bytes where `change` gives some.
inline void WriteChanged(
    const std::string& source, const std::string& dst,
    const std::function<std::vector<uint8_t>(const formats::TensorView&)>& change) {
  const auto file = formats::CmfFile::Open(source);
  formats::CmfPlan plan;
  plan.header = file->config();
  plan.tokenizer.assign(file->tokenizer_json().begin(), file->tokenizer_json().end());
  for (const formats::TensorView& tensor : file->tensors()) {
    plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes.size()});
  }
  const auto writer = formats::CmfWriter::Create(std::move(plan), dst);
  for (size_t i = 0; i < writer->size(); ++i) {
    const formats::TensorView& tensor = file->tensors()[i];
    const std::vector<uint8_t> bytes = change(tensor);
    writer->Write(i, bytes.empty() ? tensor.bytes : Bytes(bytes));
  }
  writer->Finish();
}

// Its values, each moved by `amount` of the largest, up and down by a fixed pattern.
inline std::vector<float> Perturbed(const formats::TensorView& tensor, double amount) {
  std::vector<float> values =
      quant::Decode(tensor.dtype, tensor.bytes, tensor.matrix(), {"", tensor.name});
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value += static_cast<float>(amount) * largest *
             (static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5f);
  }
  return values;
}

inline std::vector<uint8_t> EncodedAs(DType dtype, const std::vector<float>& values,
                                      quant::MatrixShape shape) {
  return quant::Encode(*quant::FindCodec(dtype), values, shape);
}

// dense_qwen3_f16 with layer 1's FFN and layer 2's o_proj changed: a fine-tuned dense_qwen3_*.
inline bool IsTuned(const std::string& name) {
  return name.starts_with("model.layers.1.mlp.") ||
         name == "model.layers.2.self_attn.o_proj.weight";
}
inline void WriteDonor(const std::string& dst) {
  WriteChanged(GoldenFile("dense_qwen3_f16"), dst, [](const formats::TensorView& tensor) {
    return IsTuned(tensor.name) ? EncodedAs(DType::kF16, Perturbed(tensor, 0.2), tensor.matrix())
                                : std::vector<uint8_t>();
  });
}

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SKILL_TEST_FILES_H_
