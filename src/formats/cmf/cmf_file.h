// A CMF v2 file, or a set of shards, as a checkpoint.
#ifndef MOEWE_FORMATS_CMF_CMF_FILE_H_
#define MOEWE_FORMATS_CMF_CMF_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/checkpoint.h"
#include "formats/cmf/directory.h"
#include "formats/cmf/envelope.h"
#include "formats/cmf/header.h"
#include "formats/cmf/masks.h"
#include "formats/cmf/sparse_index.h"
#include "formats/tensor_index.h"
#include "platform/mapped_file.h"

namespace moewe::formats {

// Everything in one file except the weights' bytes. Views point into the bytes that were parsed.
struct CmfContents {
  cmf::Envelope envelope;
  cmf::Header header;
  std::vector<cmf::DirectoryRecord> directory;
  cmf::MaskCatalog masks;
  std::vector<cmf::SparseEntry> sparse_index;
};

// Parses and checks a whole file. Throws the errors of section 1.2, Error{kParse} for malformed
// parts, and Error{kHashMismatch} for header, directory and sections that differ from their stored
// hash (tensors are verify's).
CmfContents ParseCmf(Bytes file, const std::string& path);

// Throws Error{kHashMismatch} unless `bytes` have the stored hash; 0 = not protected, passes.
void CheckHash(Bytes bytes, uint64_t stored, const Where& where);

class CmfFile : public Checkpoint {
 public:
  // `path` may be any shard of a set: all of them are opened and their directories merged (section
  // 10). Throws what ParseCmf throws, Error{kNotFound} for a missing shard, Error{kParse} for
  // shards that do not belong together.
  static std::unique_ptr<CmfFile> Open(const std::string& path);

  // Just this file, also if it is one shard of several: to look at it or to verify it.
  static std::unique_ptr<CmfFile> OpenAlone(const std::string& path);

  CheckpointKind kind() const override { return CheckpointKind::kCmf; }
  const std::vector<std::string>& files() const override { return paths_; }
  const std::vector<TensorView>& tensors() const override { return index_.views(); }
  const TensorView* Find(std::string_view name) const override { return index_.Find(name); }
  const Json& config() const override { return contents().header.json; }
  Bytes tokenizer_json() const override;
  const Json& chat_bundle() const override;
  void CheckReadable() const override;

  // Of file `part`. The first one (of a set shard 1) alone has masks, tokenizer, chat bundle and
  // skills.
  const CmfContents& contents(size_t part = 0) const { return parts_.at(part).contents; }
  Bytes file_bytes() const { return parts_.front().file->bytes(); }

 private:
  struct Part {
    std::unique_ptr<MappedFile> file;
    CmfContents contents;
  };

  void AddPart(const std::string& path);
  void CheckShard(const Part& part, const std::string& path, cmf::ShardBlock expected) const;

  std::vector<Part> parts_;
  std::vector<std::string> paths_;
  TensorIndex index_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_CMF_CMF_FILE_H_
