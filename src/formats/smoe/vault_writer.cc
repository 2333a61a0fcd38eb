#include "formats/smoe/vault_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "formats/partial_file.h"
#include "moewe/error.h"
#include "platform/mapped_file.h"
#include "platform/mapped_pages.h"
#include "platform/write_target.h"

namespace moewe::formats::smoe {
namespace {

TensorDescriptor Descriptor(uint8_t type, uint32_t rows, uint32_t cols, uint32_t bits,
                            uint64_t* offset) {
  const uint64_t elements = uint64_t{rows} * cols;
  TensorDescriptor tensor;
  tensor.tensor_type = type;
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.packed_offset = *offset;
  tensor.packed_size = PackedSize(elements, bits);
  tensor.scales_offset = tensor.packed_offset + tensor.packed_size;
  tensor.scales_size = NumGroups(elements) * 2;
  *offset = tensor.scales_offset + tensor.scales_size;
  return tensor;
}

}  // namespace

VaultPlan PlanVault(uint32_t bits, uint32_t d_model, uint32_t vocab_size,
                    const std::vector<PlannedExpert>& experts, const ArchBlock& arch) {
  VaultPlan plan;
  plan.arch = arch;
  const uint64_t ext = AlignUp(TablesEnd(experts.size()), kArchAlignment);
  if (experts.size() > UINT32_MAX || ext > UINT32_MAX) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a vault can't hold {} experts", experts.size()));
  }
  Header& header = plan.header;
  header.total_experts = static_cast<uint32_t>(experts.size());
  header.reserved_ext = static_cast<uint32_t>(ext);
  header.data_offset = AlignUp(ext + kArchSize, kPage);
  header.bits = bits;
  header.d_model = d_model;
  header.vocab_size = vocab_size;
  header.ffn_dim = d_model;  // what existing writers store
  std::map<uint32_t, uint32_t> layers;
  uint64_t position = header.data_offset;
  for (const PlannedExpert& planned : experts) {
    header.max_experts_per_layer = std::max(header.max_experts_per_layer, ++layers[planned.layer]);
    Expert expert;
    uint64_t size = 0;
    expert.tensors = {Descriptor(0, planned.width, d_model, bits, &size),
                      Descriptor(1, planned.width, d_model, bits, &size),
                      Descriptor(2, d_model, planned.width, bits, &size)};
    ExpertEntry& entry = expert.entry;
    entry.layer_id = planned.layer;
    entry.expert_id = planned.expert;
    entry.byte_offset = position;
    entry.raw_size = size;
    entry.padded_size = AlignUp(size, kPage);
    entry.num_groups = 3 * NumGroups(uint64_t{planned.width} * d_model);
    position += entry.padded_size;
    plan.experts.push_back(expert);
  }
  header.num_moe_layers = static_cast<uint32_t>(layers.size());
  return plan;
}

VaultWriter::VaultWriter(VaultPlan plan, std::string dst, const CmfWriterOptions& options)
    : plan_(std::move(plan)),
      tables_(SerializeTables(plan_.header, plan_.experts, plan_.arch)),
      options_(options),
      dst_(std::move(dst)),
      target_(BehindLinks(dst_)),
      partial_(target_ + ".partial"),
      journal_path_(partial_ + ".journal"),
      done_(plan_.experts.size(), false) {
  PartialFile partial = OpenPartial(dst_, target_, partial_, journal_path_);
  file_ = std::move(partial.file);
  if (partial.resumable) resumed_ = CmfResume::kNotAsked;
  try {
    const ExpertEntry& last = plan_.experts.back().entry;
    const uint64_t size = last.byte_offset + last.padded_size;
    const JournalIdentity identity = Identity();
    const std::vector<JournalRecord> kept = Recover(identity);
    CheckSpace(file_.get(), size, dst_);
    // The journal first: a file that is not empty and has none is not ours.
    if (kept.empty()) ResizeFile(file_.get(), 0, partial_);
    journal_.emplace(journal_path_, identity, kept);
    ReserveSpace(file_.get(), size, partial_);
  } catch (...) {
    if (resumed_ == CmfResume::kNothing) RemovePartial();
    throw;
  }
}

VaultWriter::~VaultWriter() {
  // Without a whole expert there is nothing to resume.
  if (!finished_ && !(options_.keep_partial && count_done() > 0)) RemovePartial();
}

size_t VaultWriter::count_done() const {
  return static_cast<size_t>(std::count(done_.begin(), done_.end(), true));
}

JournalIdentity VaultWriter::Identity() const {
  return {HashBytes(BytesOf(plan_.source_id)), HashBytes(tables_)};
}

// What an earlier run wrote counts where it still has the hash that the journal says.
std::vector<JournalRecord> VaultWriter::Recover(const JournalIdentity& identity) {
  using Found = JournalContents::State;
  std::vector<JournalRecord> kept;
  if (!options_.resume || resumed_ == CmfResume::kNothing) return kept;
  const JournalContents journal = WriteJournal::Read(journal_path_, identity);
  const std::unique_ptr<MappedFile> file = MappedFile::Open(partial_);
  const Bytes bytes = file->bytes();
  for (const JournalRecord& record : journal.records) {
    if (record.index >= done_.size() || done_[record.index]) continue;
    const ExpertEntry& entry = plan_.experts[record.index].entry;
    if (record.offset != entry.byte_offset || record.nbytes != entry.raw_size ||
        entry.byte_offset > bytes.size() || entry.raw_size > bytes.size() - entry.byte_offset) {
      continue;
    }
    const Bytes blob =
        bytes.subspan(static_cast<size_t>(entry.byte_offset), static_cast<size_t>(entry.raw_size));
    const uint64_t hash = HashBytes(blob);
    ForgetPages(blob);
    if (hash != record.hash || file->damaged()) continue;
    done_[record.index] = true;
    kept.push_back(record);
  }
  resumed_ = journal.state == Found::kOtherSource ? CmfResume::kOtherSource
             : journal.state == Found::kOtherPlan ? CmfResume::kOtherPlan
             : journal.state == Found::kGood && kept.size() == journal.records.size()
                 ? CmfResume::kContinued
             : kept.empty() ? CmfResume::kDamaged
                            : CmfResume::kContinuedPart;
  return kept;
}

void VaultWriter::Write(size_t index, Bytes blob) {
  const ExpertEntry& entry = plan_.experts.at(index).entry;
  if (blob.size() != entry.raw_size) {
    throw Error(ErrorCode::kInternal,
                fmt::format("layer {} expert {} has {} bytes, planned were {}", entry.layer_id,
                            entry.expert_id, blob.size(), entry.raw_size),
                {dst_, ""});
  }
  WriteAt(file_.get(), entry.byte_offset, blob, partial_);
  journal_->Add({index, entry.byte_offset, entry.raw_size, HashBytes(blob)});
  done_[index] = true;
}

void VaultWriter::Seal() {
  if (count_done() != done_.size()) {
    throw Error(ErrorCode::kInternal, "an expert was never written", {dst_, ""});
  }
  // Padding is written, not assumed: a partial file of another plan may have had bytes there.
  for (const Expert& expert : plan_.experts) {
    const ExpertEntry& entry = expert.entry;
    const std::vector<uint8_t> zeros(entry.padded_size - entry.raw_size);
    WriteAt(file_.get(), entry.byte_offset + entry.raw_size, zeros, partial_);
  }
  WriteAt(file_.get(), 0, tables_, partial_);
  const ExpertEntry& last = plan_.experts.back().entry;
  ResizeFile(file_.get(), last.byte_offset + last.padded_size, partial_);
  SyncFile(file_.get(), partial_);
}

void VaultWriter::Publish() {
  RenameAndSync(partial_, target_);
  finished_ = true;
  std::error_code ignored;
  std::filesystem::remove(journal_path_, ignored);
}

void VaultWriter::RemovePartial() {
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
  std::filesystem::remove(journal_path_, ignored);
}

}  // namespace moewe::formats::smoe
