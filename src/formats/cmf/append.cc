#include "formats/cmf/append.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "base/utf8.h"
#include "formats/cmf/writer_layout.h"
#include "moewe/error.h"

namespace moewe::formats {
namespace {

bool HasSkillOfAnotherBase(const Json& header) {
  const auto skills = header.find("skills");
  if (skills == header.end() || !skills->is_array()) return false;
  return std::any_of(skills->begin(), skills->end(), [](const Json& skill) {
    return skill.is_object() && skill.contains("base_dir_hash") &&
           !skill["base_dir_hash"].is_null();
  });
}

uint32_t Features(uint32_t old, const Json& header,
                  const std::vector<cmf::DirectoryRecord>& records) {
  uint32_t features = old & ~(cmf::kQuant2f | cmf::kSkillFile);
  for (const cmf::DirectoryRecord& record : records) {
    if (record.dtype == DType::kVbit || record.dtype == DType::kQ82f) features |= cmf::kQuant2f;
  }
  if (HasSkillOfAnotherBase(header)) features |= cmf::kSkillFile;
  return features;
}

}  // namespace

LockedCmf OpenToChange(const std::string& path, FileLock::Access access,
                       FunctionRef<void(const std::string& file)> waiting) {
  LockedCmf locked;
  // Any name of a set means its first shard.
  const std::string first = CmfFile::Open(path)->files().front();
  locked.lock = std::make_unique<FileLock>(first, access, [&] { waiting(first); });
  locked.file = CmfFile::Open(first);
  return locked;
}

std::unique_ptr<CmfAppender> CmfAppender::Open(const std::string& path,
                                               FunctionRef<void(const std::string& file)> waiting) {
  return std::unique_ptr<CmfAppender>(
      new CmfAppender(OpenToChange(path, FileLock::Access::kWrite, waiting)));
}

CmfAppender::CmfAppender(LockedCmf locked) : locked_(std::move(locked)) {
  const Bytes bytes = file().file_bytes();
  std::copy_n(bytes.begin(), old_envelope_.size(), old_envelope_.begin());
  old_size_ = end_ = bytes.size();
}

CmfAppender::~CmfAppender() {
  if (!keep_tail_) CutTail();
}

uint64_t CmfAppender::data_offset() const { return file().contents().envelope.data.offset; }

void CmfAppender::CutTail() {
  if (end_ == old_size_) return;
  try {
    ResizeFile(locked_.lock->fd(), old_size_, path());
  } catch (const Error&) {
    // Dead bytes behind the end do no harm.
  }
  end_ = old_size_;
}

void CmfAppender::Add(const std::string& name, DType dtype, const std::vector<uint64_t>& shape,
                      Bytes bytes) {
  const auto fail = [&](const char* problem) {
    throw Error(ErrorCode::kUsage, problem, {path(), "tensor '" + name + "'"});
  };
  if (name.empty() || name.size() > UINT16_MAX || !IsUtf8(name)) {
    fail("the name is empty, too long or not UTF-8");
  }
  if (file().Find(name) != nullptr || names_.contains(name)) fail("is there already");
  if (shape.size() > cmf::kMaxDimensions) fail("has more than 6 dimensions");
  cmf::DirectoryRecord record;
  record.name = name;
  record.dtype = dtype;
  record.shape = shape;
  record.offset = TensorOffset(std::max(end_, data_offset()) - data_offset(), bytes.size());
  record.nbytes = bytes.size();
  record.hash = HashBytes(bytes);
  const uint64_t begin = data_offset() + record.offset;
  end_ = begin + bytes.size();  // also if the write gets half way
  WriteAt(locked_.lock->fd(), begin, bytes, path());
  names_.insert(name);
  added_.push_back(std::move(record));
}

void CmfAppender::Remove(const std::string& name) {
  if (file().Find(name) == nullptr) {
    throw Error(ErrorCode::kUnknownName, fmt::format("there is no tensor '{}'", name),
                {path(), "directory"});
  }
  removed_.insert(name);
}

// A failure half-way, which a disk does not know for so few bytes but a broken one might, puts the
// old envelope back.
void CmfAppender::ReplaceEnvelope(const cmf::Envelope& envelope) {
  const FileLock& lock = *locked_.lock;
  keep_tail_ = true;
  try {
    WriteAt(lock.fd(), 0, cmf::SerializeEnvelope(envelope), path());
  } catch (const Error&) {
    try {
      WriteAt(lock.fd(), 0, old_envelope_, path());
      keep_tail_ = false;
    } catch (const Error&) {
      // The first error tells what is the matter with this disk.
    }
    throw;
  }
}

void CmfAppender::Commit(const Json& header) {
  const cmf::Envelope& old = file().contents().envelope;
  Json renewed = header;
  const Json& before = file().contents().header.json;
  // The sections stay where they are, with the hashes that they have.
  if (const auto hashes = before.find("section_hashes"); hashes != before.end()) {
    renewed["section_hashes"] = *hashes;
  } else {
    renewed.erase("section_hashes");
  }
  const std::string text = renewed.dump();
  std::vector<cmf::DirectoryRecord> records;
  for (const cmf::DirectoryRecord& record : file().contents().directory) {
    if (!removed_.contains(record.name)) records.push_back(record);
  }
  records.insert(records.end(), added_.begin(), added_.end());
  const std::vector<uint8_t> directory = cmf::SerializeDirectory(records);

  cmf::Envelope envelope = old;
  if (!added_.empty()) {
    envelope.data.length =
        AlignUp(std::max(old.data.length, added_.back().offset + added_.back().nbytes),
                cmf::kTensorAlignment);
  }
  const uint64_t begin =
      added_.empty() ? end_ : std::max(end_, envelope.data.offset + envelope.data.length);
  envelope.header = {begin, text.size()};
  envelope.directory = {begin + text.size(), directory.size()};
  envelope.header_hash = HashBytes(BytesOf(text));
  envelope.directory_hash = HashBytes(directory);
  envelope.required_features = Features(old.required_features, renewed, records);

  const FileLock& lock = *locked_.lock;
  end_ = envelope.directory.offset + envelope.directory.length;
  WriteAt(lock.fd(), envelope.header.offset, BytesOf(text), path());
  WriteAt(lock.fd(), envelope.directory.offset, directory, path());
  SyncFile(lock.fd(), path());
  lock.CheckStillNamed();
  file().CheckReadable();
  ReplaceEnvelope(envelope);
  SyncFile(lock.fd(), path());
}

}  // namespace moewe::formats
