// moewe dequant: one tensor as little-endian f32.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "formats/checkpoint.h"
#include "formats/cmf/cmf_file.h"
#include "platform/atomic_file.h"
#include "quant/codec.h"

namespace moewe::cli {
namespace {

// Values decoded at a time: a tensor of any size takes little memory.
constexpr uint64_t kChunkValues = 1 << 18;

const formats::TensorView& FindTensor(const formats::Checkpoint& checkpoint,
                                      const std::string& name) {
  if (const formats::TensorView* tensor = checkpoint.Find(name)) return *tensor;
  for (const formats::OpaqueTensor& tensor : checkpoint.opaque_tensors()) {
    if (tensor.name != name) continue;
    throw Error(ErrorCode::kUnsupported, "dtype " + tensor.dtype + " cannot be decoded",
                {checkpoint.files().front(), "tensor '" + name + "'"});
  }
  throw Error(ErrorCode::kUnknownName, "there is no tensor '" + name + "'",
              {checkpoint.files().front(), "--tensor"});
}

struct Flags {
  std::string path;
  std::string scout;
  std::string tensor;
  std::string out;
};

int Run(const Flags& flags, const Globals& globals) {
  const auto& [path, scout, name, out] = flags;
  const auto checkpoint = formats::OpenCheckpoint(path, scout);
  const formats::TensorView& tensor = FindTensor(*checkpoint, name);
  Where where{checkpoint->files()[tensor.file_index], "tensor '" + name + "'", {}};
  if (tensor.file_offset != formats::kNotInFile) where.offset = tensor.file_offset;
  const quant::Codec* codec = quant::FindCodec(tensor.dtype);
  if (codec == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "dtype " + std::string(DTypeName(tensor.dtype)) + " cannot be decoded yet", where);
  }
  formats::CheckHash(tensor.bytes, tensor.hash, where);
  const quant::MatrixShape shape = tensor.matrix();
  codec->validate(tensor.bytes, shape, where);

  AtomicFile file(out);
  const uint64_t step = std::max<uint64_t>(1, kChunkValues / std::max<uint64_t>(1, shape.cols));
  std::vector<float> values;
  for (uint64_t row = 0; row < shape.rows; row += step) {
    const uint64_t end = std::min(shape.rows, row + step);
    values.resize(static_cast<size_t>((end - row) * shape.cols));
    codec->decode_rows(tensor.bytes, shape, row, end, values.data());
    file.Write(
        Bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)));
  }
  checkpoint->CheckReadable();
  file.Commit();
  if (globals.json && out != "-") {
    PrintJson({{"tensor", name},
               {"dtype", DTypeName(tensor.dtype)},
               {"shape", tensor.shape},
               {"out", out},
               {"bytes", shape.rows * shape.cols * sizeof(float)}});
  }
  return 0;
}

}  // namespace

Action AddDequant(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("FILE", flags->path, "a model in any container")->required();
  verb.add_option("--scout", flags->scout, kScoutHelp);
  verb.add_option("--tensor", flags->tensor, "its name, as `info --tensors` lists it")->required();
  verb.add_option("--out", flags->out, "raw little-endian f32, row-major; - is stdout")->required();
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
