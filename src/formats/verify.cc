#include "formats/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "formats/checkpoint.h"
#include "formats/cmf/cmf_file.h"
#include "platform/mapped_file.h"
#include "quant/codec.h"

namespace moewe::formats {
namespace {

// Runs `check`; a fault of the file becomes a problem, anything else goes on to the caller.
template <typename Check>
bool Try(VerifyReport* report, const Check& check) {
  try {
    check();
    return true;
  } catch (const Error& error) {
    if (ExitCode(error.code()) != ExitCode(ErrorCode::kParse)) throw;
    report->problems.push_back({error.code(), error.where(), error.message()});
    return false;
  }
}

void CheckContent(DType dtype, const std::vector<uint64_t>& shape, Bytes bytes,
                  const Where& where) {
  const quant::Codec* codec = quant::FindCodec(dtype);
  if (codec != nullptr) codec->validate(bytes, *quant::AsMatrix(shape), where);
}

class CmfVerifier {
 public:
  CmfVerifier(const MappedFile& file, VerifyReport* report)
      : file_(file), bytes_(file.bytes()), path_(file.path()), report_(report) {}

  void Run(VerifyProgress progress) {
    if (!Try(report_, [&] { envelope_ = cmf::ParseEnvelope(bytes_, path_); })) return;
    report_->unprotected.emplace_back("envelope (the format has no hash for it)");
    // A hash that fails explains what fails to parse behind it: hashes first.
    CheckSectionHash("header", envelope_.header, envelope_.header_hash);
    const bool has_header =
        Try(report_, [&] { header_ = cmf::ParseHeader(bytes_, envelope_, path_); });
    CheckSectionHash("directory", envelope_.directory, envelope_.directory_hash);
    const bool has_directory =
        Try(report_, [&] { directory_ = cmf::ParseDirectory(bytes_, envelope_, path_); });
    if (has_header) {
      CheckNamedSection("masks", envelope_.masks);
      CheckNamedSection("vocab", envelope_.tokenizer);
      CheckNamedSection("index", envelope_.index);
      Try(report_, [&] { cmf::ParseMasks(bytes_, envelope_, header_, path_); });
    }
    Try(report_, [&] { cmf::ParseSparseIndex(bytes_, envelope_, path_); });
    if (has_directory) CheckTensors(progress);
    ListGaps();
    if (std::filesystem::exists(path_ + ".sig")) {
      report_->unprotected.emplace_back("signature " + path_ + ".sig (not checked)");
    }
    file_.Check();
  }

 private:
  void CheckSectionHash(const char* name, const cmf::Section& section, uint64_t stored) {
    if (!section.present()) return;
    if (stored == 0) report_->unprotected.emplace_back(fmt::format("section {}", name));
    Try(report_,
        [&] { CheckHash(SectionBytes(bytes_, section), stored, {path_, name, section.offset}); });
  }

  void CheckNamedSection(const char* name, const cmf::Section& section) {
    if (!section.present()) return;
    std::optional<uint64_t> stored;
    if (!Try(report_, [&] { stored = cmf::SectionHash(header_.json, name, path_); })) return;
    CheckSectionHash(name, section, stored.value_or(0));
  }

  void CheckTensors(VerifyProgress progress) {
    uint64_t total = 0;
    for (const cmf::DirectoryRecord& record : directory_) total += record.nbytes;
    uint64_t done = 0;
    for (const cmf::DirectoryRecord& record : directory_) {
      const uint64_t offset = envelope_.data.offset + record.offset;
      const Bytes bytes =
          bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(record.nbytes));
      const Where where{path_, fmt::format("tensor '{}'", record.name), offset};
      if (record.hash == 0) report_->unprotected.emplace_back(where.field);
      if (Try(report_, [&] { CheckHash(bytes, record.hash, where); })) {
        Try(report_, [&] { CheckContent(record.dtype, record.shape, bytes, where); });
      }
      done += record.nbytes;
      progress(done, total);
      file_.Check();
    }
  }

  // Bytes that belong to nothing: padding, the remains of sections that were replaced, a tail.
  void ListGaps() {
    std::vector<std::pair<uint64_t, uint64_t>> extents = {{0, cmf::kEnvelopeSize}};
    for (const cmf::Section& section : {envelope_.header, envelope_.directory, envelope_.masks,
                                        envelope_.tokenizer, envelope_.index}) {
      if (section.present()) extents.emplace_back(section.offset, section.offset + section.length);
    }
    for (const cmf::DirectoryRecord& record : directory_) {
      const uint64_t offset = envelope_.data.offset + record.offset;
      extents.emplace_back(offset, offset + record.nbytes);
    }
    std::sort(extents.begin(), extents.end());
    uint64_t unused = 0;
    uint64_t position = 0;
    for (const auto& [begin, end] : extents) {
      if (begin > position) unused += begin - position;
      position = std::max(position, end);
    }
    if (bytes_.size() > position) unused += bytes_.size() - position;
    if (unused > 0) {
      report_->unprotected.emplace_back(
          fmt::format("{} bytes of padding and unused space", unused));
    }
  }

  const MappedFile& file_;
  Bytes bytes_;
  const std::string& path_;
  VerifyReport* report_;
  cmf::Envelope envelope_;
  cmf::Header header_;
  std::vector<cmf::DirectoryRecord> directory_;
};

void VerifyOther(const std::string& path, VerifyReport* report, VerifyProgress progress) {
  std::unique_ptr<Checkpoint> checkpoint;
  if (!Try(report, [&] { checkpoint = OpenCheckpoint(path); })) return;
  for (const std::string& file : checkpoint->files()) {
    report->unprotected.emplace_back("tensors of " + file + " (safetensors stores no hashes)");
  }
  uint64_t total = 0;
  for (const TensorView& tensor : checkpoint->tensors()) total += tensor.bytes.size();
  uint64_t done = 0;
  for (const TensorView& tensor : checkpoint->tensors()) {
    const Where where{checkpoint->files()[tensor.file_index],
                      fmt::format("tensor '{}'", tensor.name), tensor.file_offset};
    Try(report, [&] { CheckContent(tensor.dtype, tensor.shape, tensor.bytes, where); });
    done += tensor.bytes.size();
    progress(done, total);
  }
  checkpoint->CheckReadable();
}

}  // namespace

VerifyReport Verify(const std::string& path, VerifyProgress progress) {
  VerifyReport report;
  if (!std::filesystem::is_directory(path)) {
    const std::unique_ptr<MappedFile> file = MappedFile::Open(path);
    const Bytes bytes = file->bytes();
    if (bytes.size() >= cmf::kMagic.size() &&
        std::equal(cmf::kMagic.begin(), cmf::kMagic.end(), bytes.begin(),
                   [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
      CmfVerifier(*file, &report).Run(progress);
      return report;
    }
  }
  VerifyOther(path, &report, progress);
  return report;
}

}  // namespace moewe::formats
