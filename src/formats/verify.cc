#include "formats/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/hash64.h"
#include "formats/checkpoint.h"
#include "formats/cmf/cmf_file.h"
#include "formats/cmf/replacement.h"
#include "formats/cmf/routers.h"
#include "formats/signature.h"
#include "formats/smoe/smoe_vault.h"
#include "platform/mapped_file.h"
#include "platform/paths.h"
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

// One tensor to be checked against its stored hash (0 = none) and its dtype's layout.
struct TensorCheck {
  Where where;
  Bytes bytes;
  DType dtype;
  std::vector<uint64_t> shape;
  uint64_t hash;
};

// Bytes that differ from their hash may be malformed because of it; too few of them for their
// layout are a fault of their own.
void CheckTensor(const TensorCheck& check, VerifyReport* report) {
  VerifyReport content;
  Try(&content, [&] { CheckContent(check.dtype, check.shape, check.bytes, check.where); });
  const bool too_short = !content.ok() && content.problems.front().code == ErrorCode::kBounds;
  if (too_short) report->problems.push_back(content.problems.front());
  const bool intact = Try(report, [&] { CheckHash(check.bytes, check.hash, check.where); });
  if (intact && !content.ok() && !too_short) report->problems.push_back(content.problems.front());
}

// Runs the checks side by side and reports their problems in order. `after_batch` may throw, to end
// it all.
void RunChecks(std::vector<TensorCheck> checks, ThreadPool* pool, VerifyReport* report,
               VerifyProgress progress, FunctionRef<void()> after_batch) {
  constexpr uint64_t kBatchBytes = uint64_t{64} << 20;  // between two reports of progress
  uint64_t total = 0;
  for (const TensorCheck& check : checks) total += check.bytes.size();
  uint64_t done = 0;
  for (size_t begin = 0; begin < checks.size();) {
    size_t end = begin;
    uint64_t batch_bytes = 0;
    while (end < checks.size() && batch_bytes < kBatchBytes) {
      batch_bytes += checks[end++].bytes.size();
    }
    std::vector<VerifyReport> reports(end - begin);
    std::vector<std::exception_ptr> failures(end - begin);
    pool->Run(end - begin, [&](size_t task, int) {
      const TensorCheck& check = checks[begin + task];
      try {
        CheckTensor(check, &reports[task]);
      } catch (...) {
        failures[task] = std::current_exception();
      }
    });
    for (size_t i = 0; i < reports.size(); ++i) {
      if (failures[i]) std::rethrow_exception(failures[i]);
      std::move(reports[i].problems.begin(), reports[i].problems.end(),
                std::back_inserter(report->problems));
    }
    begin = end;
    done += batch_bytes;
    progress(done, total);
    after_batch();
  }
}

// The signature of `path`, if one lies beside it.
void CheckSignatureBeside(const std::string& path, VerifyReport* report, VerifyProgress progress) {
  if (!PathExists(SignaturePath(path))) return;
  Try(report, [&] { report->signed_by = CheckSignature(path, progress); });
}

class CmfVerifier {
 public:
  CmfVerifier(const MappedFile& file, ThreadPool* pool, VerifyReport* report)
      : file_(file), bytes_(file.bytes()), path_(file.path()), pool_(pool), report_(report) {}

  void Run(const VerifyOptions& options, VerifyProgress progress) {
    if (!Try(report_, [&] { envelope_ = cmf::ParseEnvelope(bytes_, path_); })) return;
    report_->unprotected.emplace_back("envelope (the format has no hash for it)");
    // A hash that fails explains what fails to parse behind it: hashes first.
    CheckSectionHash("header", envelope_.header, envelope_.header_hash);
    const bool has_header =
        Try(report_, [&] { header_ = cmf::ParseHeader(bytes_, envelope_, path_); });
    if (has_header) report_->shard = header_.shard;
    CheckSectionHash("directory", envelope_.directory, envelope_.directory_hash);
    const bool has_directory = Try(report_, [&] {
      directory_ = cmf::ParseSoundRecords(bytes_, envelope_, path_, [&](const Error& error) {
        report_->problems.push_back({error.code(), error.where(), error.message()});
      });
    });
    if (has_header) {
      CheckNamedSection("masks", envelope_.masks);
      CheckNamedSection("vocab", envelope_.tokenizer);
      CheckNamedSection("index", envelope_.index);
      CheckBase(options.base);
    }
    cmf::MaskCatalog masks;
    const bool has_masks = has_header && Try(report_, [&] {
                             masks = cmf::ParseMasks(bytes_, envelope_, header_, path_);
                           });
    Try(report_, [&] {
      const auto index = cmf::ParseSparseIndex(bytes_, envelope_, path_);
      if (has_masks) {
        cmf::CheckSparseIndex(index, masks, header_, {path_, "index", envelope_.index.offset});
      }
    });
    // Of a shard alone, and of a skill without its base, the rest is elsewhere.
    if (has_header && has_directory && !header_.shard) {
      CheckSkills();
      if (!header_.standalone_skill) {
        cmf::CheckRouters(directory_, path_, [&](const Error& error) {
          report_->problems.push_back({error.code(), error.where(), error.message()});
        });
      }
    }
    if (has_directory) CheckTensors(progress);
    ListGaps();
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

  // Section 9.1: a standalone skill belongs to exactly one base, known by the hash of its
  // directory.
  void CheckBase(const std::string& base) {
    if (base.empty()) return;
    if (!header_.standalone_skill) {
      throw Error(ErrorCode::kUsage, "only a standalone skill has a base", {path_, ""});
    }
    const std::unique_ptr<CmfFile> file = CmfFile::OpenAlone(base);
    const cmf::Section& directory = file->contents().envelope.directory;
    const std::string actual = HashToHex(HashBytes(SectionBytes(file->file_bytes(), directory)));
    size_t index = 0;
    for (const Json& record : header_.json.at("skills")) {
      const auto wanted = record.find("base_dir_hash");
      if (wanted != record.end() && *wanted != actual) {
        report_->problems.push_back(
            {ErrorCode::kHashMismatch,
             {path_, fmt::format("header.skills[{}].base_dir_hash", index)},
             fmt::format(
                 "the skill was cut against a base with directory hash {}; that of {} is {}",
                 wanted->is_string() ? wanted->get<std::string>() : wanted->dump(), base, actual)});
      }
      ++index;
    }
  }

  void CheckSkills() {
    if (header_.skills.empty()) return;
    std::unordered_map<std::string_view, const cmf::DirectoryRecord*> backbone;
    for (const cmf::DirectoryRecord& record : directory_) {
      if (!record.name.starts_with(cmf::kSkillPrefix)) backbone.emplace(record.name, &record);
    }
    const auto is_backbone = [&](std::string_view name) { return backbone.contains(name); };
    for (const cmf::DirectoryRecord& record : directory_) {
      const auto owner = cmf::SkillOfTensor(header_.skills, record.name, is_backbone);
      if (!owner) continue;
      const auto found = backbone.find(owner->tensor);
      Try(report_, [&] {
        cmf::CheckReplacement(record.name, record.shape, owner->tensor,
                              found == backbone.end() ? nullptr : &found->second->shape,
                              {path_, fmt::format("tensor '{}'", record.name)});
      });
    }
  }

  void CheckTensors(VerifyProgress progress) {
    std::vector<TensorCheck> checks;
    for (const cmf::DirectoryRecord& record : directory_) {
      const uint64_t offset = envelope_.data.offset + record.offset;
      const Bytes bytes =
          bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(record.nbytes));
      const Where where{path_, fmt::format("tensor '{}'", record.name), offset};
      if (record.hash == 0) report_->unprotected.emplace_back(where.field);
      checks.push_back({where, bytes, record.dtype, record.shape, record.hash});
    }
    RunChecks(std::move(checks), pool_, report_, progress, [this] { file_.Check(); });
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
  ThreadPool* pool_;
  VerifyReport* report_;
  cmf::Envelope envelope_;
  cmf::Header header_;
  std::vector<cmf::DirectoryRecord> directory_;
};

void VerifyOther(const std::string& path, ThreadPool* pool, VerifyReport* report,
                 VerifyProgress progress) {
  std::unique_ptr<Checkpoint> checkpoint;
  if (!Try(report, [&] { checkpoint = OpenCheckpoint(path); })) return;
  for (const std::string& file : checkpoint->files()) {
    report->unprotected.emplace_back("tensors of " + file + " (safetensors stores no hashes)");
  }
  std::vector<TensorCheck> checks;
  for (const TensorView& tensor : checkpoint->tensors()) {
    const Where where{checkpoint->files()[tensor.file_index],
                      fmt::format("tensor '{}'", tensor.name), tensor.file_offset};
    checks.push_back({where, tensor.bytes, tensor.dtype, tensor.shape, /*hash=*/0});
  }
  RunChecks(std::move(checks), pool, report, progress, [&] { checkpoint->CheckReadable(); });
  checkpoint->CheckReadable();
}

// Faults of single experts first, all of them; then whether vault and Scout make a model.
void VerifyVault(const MappedFile& file, const std::string& scout, ThreadPool* pool,
                 VerifyReport* report, VerifyProgress progress) {
  const auto note = [&](const Error& error) {
    report->problems.push_back({error.code(), error.where(), error.message()});
  };
  Try(report, [&] { smoe::ParseVaultTables(file.bytes(), file.path(), note); });
  if (!report->ok()) return;
  std::unique_ptr<SmoeVault> vault;
  if (!Try(report, [&] { vault = SmoeVault::Open(file.path(), scout); })) return;
  report->warnings = vault->Warnings();
  uint64_t padded = 0;  // blobs with something else than zeros behind their experts
  for (const smoe::Expert& expert : vault->tables().experts) {
    const smoe::ExpertEntry& entry = expert.entry;
    const Bytes padding = vault->file_bytes().subspan(entry.byte_offset + entry.raw_size,
                                                      entry.padded_size - entry.raw_size);
    padded += std::any_of(padding.begin(), padding.end(), [](uint8_t b) { return b != 0; }) ? 1 : 0;
  }
  if (padded > 0) {
    report->warnings.push_back(fmt::format("padding: {} blobs end in something but zeros", padded));
  }
  for (const std::string& path : vault->files()) {
    report->unprotected.emplace_back("tensors of " + path + " (the format stores no hashes)");
  }
  std::vector<TensorCheck> checks;
  for (const TensorView& tensor : vault->tensors()) {
    const Where where{vault->files()[tensor.file_index], fmt::format("tensor '{}'", tensor.name),
                      tensor.file_offset};
    checks.push_back({where, tensor.bytes, tensor.dtype, tensor.shape, /*hash=*/0});
  }
  RunChecks(std::move(checks), pool, report, progress, [&] { vault->CheckReadable(); });
  vault->CheckReadable();
}

bool IsCmf(Bytes bytes) {
  return bytes.size() >= cmf::kMagic.size() &&
         std::equal(cmf::kMagic.begin(), cmf::kMagic.end(), bytes.begin(),
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

}  // namespace

VerifyReport Verify(const std::string& path, const VerifyOptions& options, ThreadPool* pool,
                    VerifyProgress progress) {
  VerifyReport report;
  const bool is_folder = IsFolder(path);
  const std::unique_ptr<MappedFile> file = is_folder ? nullptr : MappedFile::Open(path);
  const bool is_vault = file != nullptr && smoe::LooksLikeVault(file->bytes());
  if (!options.scout.empty() && (is_folder || IsCmf(file->bytes()))) {
    throw Error(ErrorCode::kUsage, "--scout goes with a .smoe vault", {path, ""});
  }
  if (file != nullptr && IsCmf(file->bytes())) {
    CmfVerifier(*file, pool, &report).Run(options, progress);
  } else if (!options.base.empty()) {
    throw Error(ErrorCode::kUsage, "only a standalone skill has a base", {path, ""});
  } else if (is_vault) {
    VerifyVault(*file, options.scout, pool, &report, progress);
  } else {
    VerifyOther(path, pool, &report, progress);
  }
  if (!is_folder) CheckSignatureBeside(path, &report, progress);
  return report;
}

}  // namespace moewe::formats
