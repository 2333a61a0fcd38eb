// Writing a CMF file as a stream: planned first, then tensor after tensor, never more than one in
// memory.
//
//   CmfPlan plan;  // header, sections, and every tensor's name, dtype, shape in file order
//   auto writer = CmfWriter::Create(std::move(plan), dst, options);
//   for (size_t i = 0; i < writer->size(); ++i) {
//     if (!writer->done(i)) writer->Write(i, Encode(i));
//   }
//   writer->Finish();
//
// Layout (section 1): envelope, header, directory, zeros to 4096, blob, masks, tokenizer, index. A
// tensor of 16 KiB or more starts on 4096, others on 64. Hashes, required_features and
// section_hashes are computed here. The bytes depend only on the plan and the tensors.
#ifndef MOEWE_FORMATS_CMF_WRITER_H_
#define MOEWE_FORMATS_CMF_WRITER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "quant/dtype.h"

namespace moewe::formats {

struct CmfPlanEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // at most 6 dimensions, each below 2^32
  // Bytes of the encoding. Nothing where only encoding tells (vbit, q1s, q1t): such a tensor and
  // those after it get their place when everything before them is written.
  std::optional<uint64_t> nbytes;
};

struct CmfPlan {
  // The header JSON. "format", "version" and "section_hashes" are set by the writer; every other
  // key is written as it is, so a rewrite keeps fields that moewe doesn't know.
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::vector<CmfPlanEntry> tensors;  // directory order = blob order
  std::vector<uint8_t> masks;         // whole sections; empty = absent
  std::vector<uint8_t> tokenizer;
  std::vector<uint8_t> index;
  // Identifies the source (sizes, times, what its headers say): resuming requires the same. Not
  // written to the file.
  std::string source_id;
  // What else decides the tensors' bytes (options of the encoding), for the same purpose.
  std::string encoding_id;
};

// What was found of an earlier run, and what became of it.
enum class CmfResume : uint8_t {
  kNothing,        // no earlier run
  kNotAsked,       // there was one; without `resume` it was thrown away
  kContinued,      // of the same source and plan
  kContinuedPart,  // its journal or some of its tensors are damaged: those are written again
  kOtherSource,    // started over, for these reasons
  kOtherPlan,
  kDamaged,
};

struct CmfWriterOptions {
  // Continue "<dst>.partial" if one of the same plan is there; the tensors it has are read back and
  // checked against the journal. If there is none, or it is of another plan, writing starts over.
  bool resume = false;
  // Keep "<dst>.partial" and its journal when the writer is destroyed before Finish, for a later
  // resume, if a tensor is complete.
  bool keep_partial = false;
};

// Write may be called from several threads for different tensors, if all of them have known nbytes;
// everything else from one.
class CmfWriter {
 public:
  // Throws Error{kUsage} for a plan that no file can hold (duplicate or empty names, more than 6
  // dimensions, sizes that do not fit), Error{kNoSpace} at once if the disk can't hold the file,
  // Error{kIo, kNotFound}; kIo also for a `dst` that another process is writing, and kUsage for
  // "-", for one that is there and no regular file, and for a file "<dst>.partial" that has no
  // journal of ours beside it. A `dst` that is a symbolic link stays one.
  static std::unique_ptr<CmfWriter> Create(CmfPlan plan, const std::string& dst,
                                           const CmfWriterOptions& options = {});
  virtual ~CmfWriter() = default;

  virtual CmfResume resumed() const = 0;
  virtual size_t size() const = 0;            // tensors
  virtual bool done(size_t index) const = 0;  // written, maybe by an earlier run

  // All bytes of tensor `index`; durable for a resume when it returns, except after a power cut
  // (then the read-back notices). Throws Error{kInternal} if the length is not the planned one or
  // the place is not known yet.
  virtual void Write(size_t index, Bytes bytes) = 0;

  // Writes sections, directory and envelope, syncs, renames to `dst`. Throws Error{kInternal} if a
  // tensor is missing.
  void Finish() {
    Seal();
    Publish();
  }
  // The two steps of it, for files that are to appear together: complete and synced as
  // "<dst>.partial"; then under its name.
  virtual void Seal() = 0;
  virtual void Publish() = 0;

  // Of every tensor's name, dtype, shape and bytes; all are written.
  virtual uint64_t ContentHash() const = 0;
  // Replaces a string at the top of the header by one of the same length, which only the content
  // tells. Before Seal.
  virtual void SetHeaderText(const std::string& key, const std::string& value) = 0;

  // The files that Publish names.
  virtual std::vector<std::string> paths() const = 0;

  virtual uint64_t bytes_written() const = 0;  // of tensors, those of an earlier run included
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_WRITER_H_
