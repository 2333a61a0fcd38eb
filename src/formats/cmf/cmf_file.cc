#include "formats/cmf/cmf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/hash64.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::formats {
namespace {

// "-00002-of-00005.cmf"
std::string ShardSuffix(cmf::ShardBlock shard) {
  return fmt::format("-{:05}-of-{:05}.cmf", shard.no, shard.count);
}

// Content that only the data tells to be well-formed (vbit widths, overlays): wrong bytes there
// would make reads wander.
void CheckVariableLength(const CmfContents& contents, Bytes file, const std::string& path) {
  for (size_t i = 0; i < contents.directory.size(); ++i) {
    const cmf::DirectoryRecord& record = contents.directory[i];
    const quant::Codec* codec = quant::FindCodec(record.dtype);
    const quant::MatrixShape matrix = *quant::AsMatrix(record.shape);
    if (codec == nullptr || codec->encoded_size(matrix)) continue;
    const uint64_t offset = contents.envelope.data.offset + record.offset;
    codec->validate(file.subspan(static_cast<size_t>(offset), static_cast<size_t>(record.nbytes)),
                    matrix, {path, fmt::format("tensor '{}'", record.name), offset});
  }
}

}  // namespace

void CheckHash(Bytes bytes, uint64_t stored, const Where& where) {
  if (stored == 0) return;
  if (const uint64_t actual = HashBytes(bytes); actual != stored) {
    throw Error(
        ErrorCode::kHashMismatch,
        fmt::format("hash {} is stored, the bytes have {}", HashToHex(stored), HashToHex(actual)),
        where);
  }
}

CmfContents ParseCmf(Bytes file, const std::string& path) {
  CmfContents contents;
  contents.envelope = cmf::ParseEnvelope(file, path);
  const cmf::Envelope& envelope = contents.envelope;
  CheckHash(SectionBytes(file, envelope.header), envelope.header_hash,
            {path, "header", envelope.header.offset});
  contents.header = cmf::ParseHeader(file, envelope, path);
  CheckHash(SectionBytes(file, envelope.directory), envelope.directory_hash,
            {path, "directory", envelope.directory.offset});
  contents.directory = cmf::ParseDirectory(file, envelope, path);
  const auto check_section = [&](const char* name, const cmf::Section& section) {
    if (!section.present()) return;
    const auto stored = cmf::SectionHash(contents.header.json, name, path);
    CheckHash(SectionBytes(file, section), stored.value_or(0), {path, name, section.offset});
  };
  check_section("masks", envelope.masks);
  check_section("vocab", envelope.tokenizer);
  check_section("index", envelope.index);
  contents.masks = cmf::ParseMasks(file, envelope, contents.header, path);
  contents.sparse_index = cmf::ParseSparseIndex(file, envelope, path);
  CheckVariableLength(contents, file, path);
  return contents;
}

std::unique_ptr<CmfFile> CmfFile::OpenAlone(const std::string& path) {
  auto result = std::make_unique<CmfFile>();
  result->AddPart(path);
  return result;
}

std::unique_ptr<CmfFile> CmfFile::Open(const std::string& path) {
  auto result = OpenAlone(path);
  const std::optional<cmf::ShardBlock> shard = result->contents().header.shard;
  if (!shard) return result;
  const std::string suffix = ShardSuffix(*shard);
  if (!path.ends_with(suffix)) {
    throw Error(ErrorCode::kParse, "a shard whose file name does not end with '" + suffix + "'",
                {path, "header.shard"});
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  if (shard->no != 1) result = std::make_unique<CmfFile>();
  for (uint32_t no = result->parts_.empty() ? 1 : 2; no <= shard->count; ++no) {
    const cmf::ShardBlock expected{no, shard->count};
    const std::string sibling = stem + ShardSuffix(expected);
    result->AddPart(sibling);
    result->CheckShard(result->parts_.back(), sibling, expected);
  }
  return result;
}

void CmfFile::AddPart(const std::string& path) {
  Part part;
  part.file = MappedFile::Open(path);
  part.contents = ParseCmf(part.file->bytes(), path);
  part.file->Check();
  const auto file_index = static_cast<uint32_t>(parts_.size());
  index_.Reserve(index_.views().size() + part.contents.directory.size());
  for (const cmf::DirectoryRecord& record : part.contents.directory) {
    TensorView view;
    view.name = record.name;
    view.dtype = record.dtype;
    view.shape = record.shape;
    view.file_index = file_index;
    view.file_offset = part.contents.envelope.data.offset + record.offset;
    view.bytes = part.file->bytes().subspan(static_cast<size_t>(view.file_offset),
                                            static_cast<size_t>(record.nbytes));
    view.hash = record.hash;
    if (!index_.Add(std::move(view))) {
      throw Error(ErrorCode::kParse, "tensor '" + record.name + "' is in two shards",
                  {path, "directory"});
    }
  }
  parts_.push_back(std::move(part));
  paths_.push_back(path);
}

void CmfFile::CheckShard(const Part& part, const std::string& path,
                         cmf::ShardBlock expected) const {
  const std::optional<cmf::ShardBlock>& shard = part.contents.header.shard;
  if (!shard || shard->no != expected.no || shard->count != expected.count) {
    throw Error(
        ErrorCode::kParse,
        fmt::format("expected shard {} of {}, the header says {}", expected.no, expected.count,
                    shard ? fmt::format("{} of {}", shard->no, shard->count) : "none"),
        {path, "header.shard"});
  }
  // The arch is a weak sign; moewe's own sets have a hash of the whole content in common.
  for (const char* key : {"arch", "shard_set"}) {
    const Json& mine = part.contents.header.json;
    const Json& first = contents().header.json;
    if (mine.value(key, Json()) != first.value(key, Json())) {
      throw Error(ErrorCode::kParse, "the shard is of another model than shard 1",
                  {path, std::string("header.") + key});
    }
  }
}

Bytes CmfFile::tokenizer_json() const {
  return SectionBytes(file_bytes(), contents().envelope.tokenizer);
}

const Json& CmfFile::chat_bundle() const {
  static const Json kNull;
  const auto it = config().find("tokenizer_config");
  return it == config().end() ? kNull : *it;
}

void CmfFile::CheckReadable() const {
  for (const Part& part : parts_) part.file->Check();
}

}  // namespace moewe::formats
