// Which neurons of dense FFNs are live, and the cut that leaves the others out (CMF v2 section 11).
#ifndef MOEWE_CONVERT_FFN_CUT_H_
#define MOEWE_CONVERT_FFN_CUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convert/cut.h"
#include "formats/checkpoint.h"
#include "formats/cmf/cmf_file.h"
#include "formats/npy.h"
#include "platform/mapped_file.h"
#include "platform/thread_pool.h"

namespace moewe::convert {

// What a pruning pipeline leaves behind: "tensors/<name>.npy", baked weights in the place of the
// source's (float32 or float16), and "ffn_keep.npy", a bool [layers, intermediate], true = live.
// Either may be missing. Seen as a checkpoint this is the source with the folder's files beside
// its own, so that a change of one of them is noticed when a conversion is resumed.
class DefragFolder : public formats::Checkpoint {
 public:
  // Throws Error{kNotFound} if there is no such folder, and what ParseNpyBits and ParseNpyFloats
  // throw. `source` must outlive this.
  DefragFolder(const formats::Checkpoint& source, const std::string& folder);

  // Puts the baked weights in the place of `tensors` of the same canonical name. Throws
  // Error{kUnknownName} for one that is not there, Error{kParse} for another shape.
  void Overlay(std::vector<formats::TensorView>* tensors) const;

  // The live neurons of every layer with a dense FFN: by ffn_keep.npy; without it those whose
  // column of down_proj is not all zeros. Throws Error{kParse} if the array is not of this model.
  std::map<uint32_t, Kept> LiveNeurons(const std::vector<formats::TensorView>& tensors,
                                       uint64_t num_layers, ThreadPool& pool) const;

  formats::CheckpointKind kind() const override { return source_.kind(); }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<formats::TensorView>& tensors() const override { return source_.tensors(); }
  const formats::TensorView* Find(std::string_view name) const override {
    return source_.Find(name);
  }
  const std::vector<formats::OpaqueTensor>& opaque_tensors() const override {
    return source_.opaque_tensors();
  }
  void CheckReadable() const override;
  const Json& config() const override { return source_.config(); }
  Bytes tokenizer_json() const override { return source_.tokenizer_json(); }
  const Json& chat_bundle() const override { return source_.chat_bundle(); }

 private:
  struct Baked {
    std::string name;  // of the tensor
    uint32_t file_index = 0;
    std::unique_ptr<MappedFile> file;
    formats::NpyFloats array;
  };

  const formats::Checkpoint& source_;
  std::vector<std::string> files_;
  std::vector<Baked> baked_;
  std::string keep_file_;
  std::optional<formats::NpyBits> keep_;
};

// Neurons and experts that a task mask of `source` leaves. Throws Error{kUnknownName} for a mask
// that is not there, Error{kUnsupported} for one that turns off heads or layers, whose passes
// differ in a looped model, or whose rows are of other widths than the layers, Error{kUsage} if it
// turns nothing off.
Cut CutOfTask(const formats::CmfFile& source, const std::string& task);

// The block provenance.defrag of a cut with neurons: `tensors` before it, `origin` where it is
// from.
Json FfnProvenance(const std::vector<formats::TensorView>& tensors, const Cut& cut,
                   const std::string& origin);

// The same of the cut of a task mask: the block defrag, moe_defrag or both.
Json TaskProvenance(const formats::CmfFile& source, const Cut& cut, const std::string& task);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_FFN_CUT_H_
