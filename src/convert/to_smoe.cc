#include "convert/to_smoe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/bytes_of.h"
#include "convert/destination.h"
#include "convert/encode.h"
#include "convert/range_check.h"
#include "convert/resume_note.h"
#include "convert/smoe_plan.h"
#include "formats/smoe/scout.h"
#include "formats/smoe/smoe_vault.h"
#include "formats/smoe/vault_tables.h"
#include "formats/tensor_values.h"
#include "model/weights.h"
#include "moewe/error.h"
#include "platform/atomic_file.h"
#include "platform/mapped_file.h"
#include "platform/mapped_pages.h"
#include "platform/replaced_files.h"
#include "platform/write_target.h"
#include "quant/codec.h"

namespace moewe::convert {
namespace {

using formats::TensorView;
namespace smoe = formats::smoe;

constexpr size_t kPieceBytes = size_t{4} << 20;  // of a Scout's tensor in memory

class Sculptor {
 public:
  Sculptor(const formats::Checkpoint& source, const std::string& dst, const SmoeOptions& options,
           ThreadPool& pool)
      : source_(source),
        options_(options),
        pool_(pool),
        dst_(dst),
        companions_(formats::CompanionsOf(dst)) {}

  SmoeResult Run() {
    for (const std::string& file :
         {dst_, companions_.scout, companions_.tokenizer, companions_.chat}) {
      CheckDestination(source_, file);
    }
    plan_ = PlanSmoe(source_, options_.plain_scout);
    Tell();
    smoe::VaultPlan vault = smoe::PlanVault(options_.bits, plan_.config.hidden_size,
                                            plan_.config.vocab_size, plan_.experts, plan_.arch);
    smoe::CheckArch(vault.arch, vault.header, source_.files().front());
    vault.source_id = SourceIdentity(source_);
    for (const smoe::Expert& expert : vault.experts) result_.bytes += expert.entry.raw_size;
    smoe::VaultWriter writer(std::move(vault), dst_,
                             {.resume = options_.resume, .keep_partial = options_.keep_partial});
    Note(ResumeNote(writer.resumed(), options_.resume, writer.count_done(), plan_.experts.size(),
                    "experts"));
    ReplacedFiles old({dst_, companions_.scout, companions_.tokenizer, companions_.chat});
    CheckSpaceForScout();
    WriteExperts(&writer);
    writer.Seal();
    AtomicFile scout(companions_.scout);
    WriteScout(writer.partial_path(), &scout);
    const auto tokenizer = Companion(companions_.tokenizer, source_.tokenizer_json());
    const std::string chat = source_.chat_bundle().is_null() ? "" : source_.chat_bundle().dump(1);
    const auto bundle = Companion(companions_.chat, BytesOf(chat));
    source_.CheckReadable();
    // All is written. A companion that the source has nothing for must not be an earlier vault's.
    old.SetAside();
    scout.Commit();
    if (tokenizer) tokenizer->Commit();
    if (bundle) bundle->Commit();
    writer.Publish();
    old.Forget();
    result_.files.insert(result_.files.begin(), {dst_, companions_.scout});
    result_.experts = plan_.experts.size();
    return std::move(result_);
  }

 private:
  void Note(const std::string& line) const {
    if (options_.note && !line.empty()) options_.note(line);
  }

  void Tell() {
    result_.warnings = plan_.warnings;
    if (options_.warning) {
      for (const std::string& warning : plan_.warnings) options_.warning(warning);
    }
    for (const std::string& line : plan_.notes) Note(line);
    progress_.tensors_total = 3 * plan_.matrices.size() + plan_.scout.size();
    for (const auto& matrices : plan_.matrices) {
      for (const TensorView& matrix : matrices) {
        progress_.bytes_total += matrix.bytes.size();
        result_.elements += matrix.matrix().rows * matrix.matrix().cols;
      }
    }
    for (const ScoutTensor& tensor : plan_.scout) {
      progress_.bytes_total += tensor.source.bytes.size();
    }
  }

  Where WhereOf(const TensorView& tensor) const {
    Where where{source_.files()[tensor.file_index], tensor.name, {}};
    if (tensor.file_offset != formats::kNotInFile) where.offset = tensor.file_offset;
    return where;
  }

  void Advance(const TensorView& tensor) {
    ForgetPages(tensor.bytes);
    ++progress_.tensors;
    progress_.bytes += tensor.bytes.size();
    progress_.name = tensor.name;
  }

  void WriteExperts(smoe::VaultWriter* writer) {
    for (size_t i = 0; i < plan_.matrices.size(); ++i) {
      if (!writer->done(i)) {
        if (i + 1 < plan_.matrices.size()) {
          for (const TensorView& next : plan_.matrices[i + 1]) PrefetchPages(next.bytes);
        }
        std::vector<uint8_t> blob;
        for (const TensorView& matrix : plan_.matrices[i]) Append(matrix, &blob);
        writer->Write(i, blob);
      }
      for (const TensorView& matrix : plan_.matrices[i]) Advance(matrix);
      if (options_.progress) options_.progress(progress_);
    }
  }

  // Codes and scales of one matrix.
  void Append(const TensorView& matrix, std::vector<uint8_t>* blob) {
    model::VerifyTensor(source_, matrix);
    const DType dtype = smoe::ExpertDType(options_.bits);
    if (matrix.dtype == dtype) {
      blob->insert(blob->end(), matrix.bytes.begin(), matrix.bytes.end());
      return;
    }
    CheckSmoeRange(matrix, pool_, WhereOf(matrix));
    const std::vector<uint8_t> encoded = EncodeTensor(matrix, dtype, {}, pool_, WhereOf(matrix));
    blob->insert(blob->end(), encoded.begin(), encoded.end());
  }

  std::map<std::string, std::string> Metadata(const std::string& vault_path) const {
    if (options_.plain_scout) return {};
    // Parsing what was written checks it, too.
    const std::unique_ptr<MappedFile> vault = MappedFile::Open(vault_path);
    const smoe::VaultTables tables = smoe::ParseVaultTables(vault->bytes(), vault_path);
    return {{smoe::kArchName, plan_.arch_json},
            {smoe::kKeyName, smoe::VaultKey(tables, vault->bytes())}};
  }

  void WriteScout(const std::string& vault_path, AtomicFile* out) {
    std::vector<formats::SafetensorsTensor> targets;
    for (const ScoutTensor& tensor : plan_.scout) targets.push_back(tensor.target);
    out->Write(formats::SafetensorsHeaderBytes(targets, Metadata(vault_path)));
    for (const ScoutTensor& tensor : plan_.scout) {
      model::VerifyTensor(source_, tensor.source);
      if (tensor.copied()) {
        Copy(tensor.source.bytes, out);
      } else {
        Widen(tensor.source, out);
      }
      Advance(tensor.source);
      if (options_.progress) options_.progress(progress_);
    }
  }

  static void Copy(Bytes bytes, AtomicFile* out) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const Bytes piece = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at));
      out->Write(piece);
      ForgetPages(piece);
    }
  }

  // A quantized tensor as f32, some rows at a time.
  void Widen(const TensorView& tensor, AtomicFile* out) const {
    const formats::TensorValues stored(tensor);
    const quant::MatrixShape shape = tensor.matrix();
    stored.Validate(WhereOf(tensor));
    const uint64_t step =
        std::max<uint64_t>(1, kPieceBytes / sizeof(float) / std::max<uint64_t>(1, shape.cols));
    std::vector<float> values;
    for (uint64_t row = 0; row < shape.rows; row += step) {
      const uint64_t end = std::min(shape.rows, row + step);
      values.resize(static_cast<size_t>((end - row) * shape.cols));
      stored.DecodeRows(row, end, values.data());
      out->Write({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
    }
  }

  // The vault has its space; a disk that is too small for the Scout shows before hours of work.
  void CheckSpaceForScout() const {
    uint64_t needed = 0;
    for (const ScoutTensor& tensor : plan_.scout) needed += tensor.target.nbytes;
    const std::string folder =
        std::filesystem::path(BehindLinks(companions_.scout)).parent_path().string();
    const FileDescriptor at = FileDescriptor::OpenForReading(folder.empty() ? "." : folder);
    const std::optional<uint64_t> free = FreeSpace(at.get());
    if (!free || *free >= needed) return;
    throw Error(ErrorCode::kNoSpace,
                fmt::format("the Scout needs {} bytes beside the vault, the disk has {} left",
                            needed, *free),
                {companions_.scout, ""});
  }

  // Complete but for its name; null if there is nothing to write.
  std::unique_ptr<AtomicFile> Companion(const std::string& path, Bytes bytes) {
    if (bytes.empty()) return nullptr;
    auto file = std::make_unique<AtomicFile>(path);
    file->Write(bytes);
    result_.files.push_back(path);
    return file;
  }

  const formats::Checkpoint& source_;
  const SmoeOptions& options_;
  ThreadPool& pool_;
  const std::string dst_;
  const formats::SmoeCompanions companions_;
  SmoePlan plan_;
  SmoeResult result_;
  ConvertProgress progress_;
};

}  // namespace

SmoeResult ConvertToSmoe(const formats::Checkpoint& source, const std::string& dst,
                         const SmoeOptions& options, ThreadPool& pool) {
  return Sculptor(source, dst, options, pool).Run();
}

}  // namespace moewe::convert
