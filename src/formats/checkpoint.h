// What every container of weights looks like from above.
//
// CmfFile, HfFolder and SmoeVault (and later GgufFile) implement it, so that conversion is one
// program and the model does not know where its bytes come from.
#ifndef MOEWE_FORMATS_CHECKPOINT_H_
#define MOEWE_FORMATS_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "quant/codec.h"
#include "quant/dtype.h"
#include "quant/fp8.h"

namespace moewe::formats {

// TensorView::file_offset of bytes that lie in memory only (put together, computed).
inline constexpr uint64_t kNotInFile = UINT64_MAX;

class MadeBytes;

// One tensor where it lies. Cheap to copy; `bytes` points into the mapping of the checkpoint that
// it came from and lives as long as that does.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first; checked: the element count fits 64 bits
  Bytes bytes;                  // stored encoding, length checked against dtype and shape
  uint32_t file_index = 0;      // into Checkpoint::files()
  uint64_t file_offset = 0;     // of bytes, from the start of that file; or kNotInFile
  uint64_t hash = 0;            // stored hash64; 0 = not protected
  // Of bytes that are made where they are used: who reads them has a HeldBytes
  // (formats/made_bytes.h). Null = they are there.
  std::shared_ptr<MadeBytes> made;
  quant::BlockScales scales;  // of kF8E4m3; without blocks for every other dtype

  quant::MatrixShape matrix() const { return quant::AsMatrix(shape).value(); }
};

// A tensor whose element type moewe has no codec for (i64 buffers, fp8, ...): listed and checked
// for bounds. What its bytes mean is for those to say who know what lies beside it.
struct OpaqueTensor {
  std::string name;
  std::string dtype;  // as the file spells it, e.g. "F8_E4M3"
  std::vector<uint64_t> shape;
  uint64_t nbytes = 0;
  Bytes bytes;  // as of TensorView, and so what follows
  uint32_t file_index = 0;
  uint64_t file_offset = 0;
};

enum class CheckpointKind { kCmf, kHuggingFace, kSmoe, kGguf };

// Opened and validated; immutable afterwards, so const methods may be called from any thread.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual CheckpointKind kind() const = 0;

  // Paths as opened; the first is the one that messages name.
  virtual const std::vector<std::string>& files() const = 0;

  // In directory order.
  virtual const std::vector<TensorView>& tensors() const = 0;

  // Null if there is none. O(1).
  virtual const TensorView* Find(std::string_view name) const = 0;

  // Not among tensors(). Whoever needs one of them reports Error{kUnsupported} naming it and its
  // dtype.
  virtual const std::vector<OpaqueTensor>& opaque_tensors() const {
    static const std::vector<OpaqueTensor> kNone;
    return kNone;
  }

  // Throws Error{kIo} if a file became shorter since it was opened: bytes read since then may be
  // zeros. To be called when an operation that read weights ends, before its result is used. Cheap;
  // any thread.
  virtual void CheckReadable() const {}

  // Hugging Face: config.json. CMF: the whole header JSON (model config under "arch"). A vault: its
  // header, arch block and the Scout's metadata as JSON.
  virtual const nlohmann::ordered_json& config() const = 0;

  // tokenizer.json, verbatim; empty if absent.
  virtual Bytes tokenizer_json() const = 0;

  // The chat bundle of CMF section 6.1 with moewe's "generation" block: keys chat_template,
  // eos_token_ids, bos_token_id, pad_token_id, generation, and the special-token strings that
  // templates use. Null JSON if absent. From a Hugging Face folder it is put together from
  // tokenizer_config.json, chat_template.jinja, generation_config.json and config.json.
  virtual const nlohmann::ordered_json& chat_bundle() const = 0;
};

// Opens MODEL by its bytes, never by its extension: a CMF file (of a shard set: all of it), a .smoe
// vault with its companions, a folder with config.json and safetensors, or one safetensors file
// (config() and chat_bundle() are null then). `scout` is the safetensors file that goes with a
// vault; empty = "<stem>.scout.safetensors" beside it. Throws Error{kNotFound, kInvalidMagic, ...},
// kUsage for a `scout` with another kind of model.
std::unique_ptr<Checkpoint> OpenCheckpoint(const std::string& path, const std::string& scout = {});

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CHECKPOINT_H_
