#include "formats/cmf/writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "base/json.h"
#include "base/utf8.h"
#include "formats/cmf/directory.h"
#include "formats/cmf/envelope.h"
#include "formats/cmf/masks.h"
#include "formats/cmf/write_journal.h"
#include "formats/cmf/writer_layout.h"
#include "formats/partial_file.h"
#include "moewe/error.h"
#include "platform/file_io.h"
#include "platform/mapped_file.h"
#include "platform/write_target.h"

namespace moewe::formats {
namespace {

constexpr uint64_t kMaxDimension = UINT32_MAX;
constexpr uint64_t kMaxPool = UINT32_MAX;

void CheckPlan(const CmfPlan& plan, const std::string& dst) {
  std::unordered_set<std::string_view> names;
  uint64_t pool = 0;
  for (const CmfPlanEntry& entry : plan.tensors) {
    const Where where{dst, "tensor '" + entry.name + "'"};
    const auto fail = [&](const char* problem) {
      throw Error(ErrorCode::kUsage, std::string("a CMF file can't hold it: ") + problem, where);
    };
    if (entry.name.empty() || entry.name.size() > UINT16_MAX || !IsUtf8(entry.name)) {
      fail("the name is empty, too long or not UTF-8");
    }
    if (!names.insert(entry.name).second) fail("the name is taken");
    if (!IsCmfDType(entry.dtype)) fail("a dtype of another format");
    if (entry.shape.size() > cmf::kMaxDimensions) fail("more than 6 dimensions");
    for (const uint64_t dimension : entry.shape) {
      if (dimension > kMaxDimension) fail("a dimension of more than 32 bits");
    }
    if (entry.nbytes && *entry.nbytes > uint64_t{1} << 60) fail("too large");
    pool += entry.name.size();
  }
  if (pool > kMaxPool) throw Error(ErrorCode::kUsage, "the names are too long in total", {dst, ""});
}

uint32_t RequiredFeatures(const CmfPlan& plan) {
  uint32_t features = cmf::kTensorDir;
  for (const CmfPlanEntry& entry : plan.tensors) {
    if (entry.dtype == DType::kVbit || entry.dtype == DType::kQ82f) features |= cmf::kQuant2f;
  }
  const Json& header = plan.header;
  const Json& arch = header.contains("arch") ? header.at("arch") : header;
  const bool counted = arch.contains("num_loops") && arch.at("num_loops").is_number_unsigned();
  features |=
      cmf::MaskFeatures(!plan.masks.empty(), counted ? arch.at("num_loops").get<uint64_t>() : 1);
  if (header.contains("skills") && header.at("skills").is_array()) {
    for (const Json& skill : header.at("skills")) {
      if (skill.is_object() && skill.contains("base_dir_hash") &&
          !skill.at("base_dir_hash").is_null()) {
        features |= cmf::kSkillFile;
      }
    }
  }
  return features;
}

class Writer : public CmfWriter {
 public:
  Writer(CmfPlan plan, const std::string& dst, const CmfWriterOptions& options)
      : plan_(std::move(plan)),
        options_(options),
        dst_(dst),
        target_(BehindLinks(dst)),
        partial_(target_ + ".partial"),
        journal_path_(partial_ + ".journal") {
    CheckPlan(plan_, dst_);
    header_ = HeaderText(plan_);
    PlaceSections();
    records_.resize(plan_.tensors.size());
    state_.resize(plan_.tensors.size(), State::kPlanned);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      records_[i].name = plan_.tensors[i].name;
      records_[i].dtype = plan_.tensors[i].dtype;
      records_[i].shape = plan_.tensors[i].shape;
    }
    PlaceTensors();
    Lock();
    std::vector<JournalRecord> kept;
    try {
      const JournalIdentity identity = Identity();
      kept = Recover(identity);
      CheckSpace(file_.get(), PlannedSize(), dst_);
      // The journal first: a file that is not empty and has none is not ours.
      if (kept.empty()) ResizeFile(file_.get(), 0, partial_);
      journal_.emplace(journal_path_, identity, kept);
      ReserveSpace(file_.get(), PlannedSize(), partial_);
    } catch (...) {
      // Nothing was added: what an earlier run left stays for the next resume, a new file goes.
      if (resumed_ == CmfResume::kNothing) RemovePartial();
      throw;
    }
  }

  ~Writer() override {
    // Without a whole tensor there is nothing to resume.
    const bool any = std::find(state_.begin(), state_.end(), State::kDone) != state_.end();
    if (!finished_ && !(options_.keep_partial && any)) RemovePartial();
  }

  CmfResume resumed() const override { return resumed_; }
  size_t size() const override { return records_.size(); }
  bool done(size_t index) const override {
    const std::lock_guard lock(mutex_);
    return state_.at(index) == State::kDone;
  }
  uint64_t bytes_written() const override {
    const std::lock_guard lock(mutex_);
    return bytes_written_;
  }

  void Write(size_t index, Bytes bytes) override {
    const uint64_t offset = Claim(index, bytes.size());
    try {
      WriteAt(file_.get(), data_.offset + offset, bytes, partial_);
    } catch (...) {
      Unclaim(index);
      throw;
    }
    Complete(index, bytes.size(), HashBytes(bytes));
  }

  void Seal() override {
    uint64_t end = 0;
    for (size_t i = 0; i < records_.size(); ++i) {
      if (state_[i] != State::kDone) Fail(i, "was never written");
      end = std::max(end, records_[i].offset + records_[i].nbytes);
    }
    cmf::Envelope envelope;
    envelope.required_features = RequiredFeatures(plan_);
    envelope.header = {cmf::kEnvelopeSize, header_.size()};
    const std::vector<uint8_t> directory = cmf::SerializeDirectory(records_);
    envelope.directory = {cmf::kEnvelopeSize + header_.size(), directory.size()};
    envelope.data = {data_.offset, AlignUp(end, cmf::kTensorAlignment)};
    envelope.header_hash = HashBytes(BytesOf(header_));
    envelope.directory_hash = HashBytes(directory);

    uint64_t position = data_.offset + envelope.data.length;
    const auto place = [&](const std::vector<uint8_t>& bytes, cmf::Section* section) {
      if (bytes.empty()) return;
      *section = {position, bytes.size()};
      WriteAt(file_.get(), position, bytes, partial_);
      position += bytes.size();
    };
    place(plan_.masks, &envelope.masks);
    place(plan_.tokenizer, &envelope.tokenizer);
    place(plan_.index, &envelope.index);
    WriteAt(file_.get(), envelope.header.offset, BytesOf(header_), partial_);
    WriteAt(file_.get(), envelope.directory.offset, directory, partial_);
    WriteAt(file_.get(), 0, cmf::SerializeEnvelope(envelope), partial_);
    // Cuts what was reserved too much and gives the padding at the end its zeros.
    ResizeFile(file_.get(), position, partial_);
    SyncFile(file_.get(), partial_);
  }

  void Publish() override {
    RenameAndSync(partial_, target_);
    finished_ = true;
    unlink(journal_path_.c_str());
  }

  uint64_t ContentHash() const override {
    Hash64 hash;
    for (const cmf::DirectoryRecord& record : records_) {
      hash.Update(BytesOf(fmt::format("{}|{}|{}|{}|", record.name, static_cast<int>(record.dtype),
                                      fmt::join(record.shape, ","), record.hash)));
    }
    return hash.Digest();
  }

  void SetHeaderText(const std::string& key, const std::string& value) override {
    plan_.header.at(key) = value;
    const size_t length = header_.size();
    header_ = HeaderText(plan_);
    if (header_.size() != length) {
      throw Error(ErrorCode::kInternal, "the header changed its length", {dst_, key});
    }
  }

  std::vector<std::string> paths() const override { return {dst_}; }

 private:
  enum class State : uint8_t { kPlanned, kWriting, kDone };
  [[noreturn]] void Fail(size_t index, const char* problem) const {
    throw Error(ErrorCode::kInternal, fmt::format("tensor '{}': {}", records_[index].name, problem),
                {dst_, ""});
  }

  void PlaceSections() {
    uint64_t names = 0;
    for (const CmfPlanEntry& entry : plan_.tensors) names += entry.name.size();
    data_.offset = DataOffset(header_.size(), plan_.tensors.size(), names);
  }

  // Gives offsets to all tensors up to the first whose size is not known; continues where it
  // stopped.
  void PlaceTensors() {
    while (placed_ < records_.size()) {
      const std::optional<uint64_t>& nbytes = plan_.tensors[placed_].nbytes;
      if (!nbytes) break;
      Place(placed_, *nbytes);
    }
  }
  void Place(size_t index, uint64_t nbytes) {
    records_[index].offset = TensorOffset(next_offset_, nbytes);
    records_[index].nbytes = nbytes;
    next_offset_ = records_[index].offset + nbytes;
    placed_ = index + 1;
  }

  uint64_t Claim(size_t index, uint64_t nbytes) {
    const std::lock_guard lock(mutex_);
    const CmfPlanEntry& entry = plan_.tensors.at(index);
    if (state_[index] != State::kPlanned) Fail(index, "is written twice");
    if (entry.nbytes && *entry.nbytes != nbytes) Fail(index, "not the planned number of bytes");
    if (index >= placed_) {
      if (index != placed_)
        Fail(index, "its place is not known before those before it are written");
      Place(index, nbytes);
      PlaceTensors();
    }
    state_[index] = State::kWriting;
    return records_[index].offset;
  }
  void Unclaim(size_t index) {
    const std::lock_guard lock(mutex_);
    state_[index] = State::kPlanned;
  }
  void Complete(size_t index, uint64_t nbytes, uint64_t hash) {
    const std::lock_guard lock(mutex_);
    records_[index].hash = hash;
    journal_->Add({index, records_[index].offset, nbytes, hash});
    state_[index] = State::kDone;
    bytes_written_ += nbytes;
  }

  // Nobody else may write to the same destination as long as this writer lives.
  void Lock() {
    if (dst_ == "-") {
      throw Error(ErrorCode::kUsage, "a CMF file can't be written to standard output", {dst_, ""});
    }
    PartialFile partial = OpenPartial(dst_, target_, partial_, journal_path_);
    file_ = std::move(partial.file);
    if (partial.resumable) resumed_ = CmfResume::kNotAsked;
  }

  // Of everything that decides which bytes go where.
  JournalIdentity Identity() const {
    Hash64 hash;
    hash.Update(BytesOf(header_));
    hash.Update(BytesOf(plan_.encoding_id));
    for (const CmfPlanEntry& entry : plan_.tensors) {
      hash.Update(BytesOf(fmt::format("|{}|{}|{}|", entry.name, static_cast<int>(entry.dtype),
                                      fmt::join(entry.shape, ","))));
      if (entry.nbytes) hash.Update(BytesOf(std::to_string(*entry.nbytes)));
    }
    return {HashBytes(BytesOf(plan_.source_id)), hash.Digest()};
  }

  // Reads back what an earlier run wrote and takes over every tensor whose bytes are as the journal
  // says.
  std::vector<JournalRecord> Recover(const JournalIdentity& identity) {
    using Found = JournalContents::State;
    std::vector<JournalRecord> kept;
    if (!options_.resume || resumed_ == CmfResume::kNothing) return kept;
    JournalContents journal = WriteJournal::Read(journal_path_, identity);
    std::vector<JournalRecord>& records = journal.records;
    std::sort(records.begin(), records.end(),
              [](const JournalRecord& a, const JournalRecord& b) { return a.index < b.index; });
    const std::unique_ptr<MappedFile> file = MappedFile::Open(partial_);
    const Bytes bytes = file->bytes();
    for (const JournalRecord& record : records) {
      if (record.index >= records_.size() || state_[record.index] == State::kDone) continue;
      const auto index = static_cast<size_t>(record.index);
      if (index > placed_) break;  // a gap before it: its place is open again
      if (plan_.tensors[index].nbytes.value_or(record.nbytes) != record.nbytes) continue;
      if (index == placed_) {
        Place(index, record.nbytes);
        PlaceTensors();
      }
      const uint64_t begin = data_.offset + record.offset;
      if (records_[index].offset != record.offset || begin > bytes.size() ||
          record.nbytes > bytes.size() - begin) {
        continue;
      }
      const uint64_t hash =
          HashBytes(bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(record.nbytes)));
      if (hash != record.hash || file->damaged()) continue;
      records_[index].hash = hash;
      state_[index] = State::kDone;
      bytes_written_ += record.nbytes;
      kept.push_back(record);
    }
    resumed_ = journal.state == Found::kOtherSource ? CmfResume::kOtherSource
               : journal.state == Found::kOtherPlan ? CmfResume::kOtherPlan
               : journal.state == Found::kGood && kept.size() == records.size()
                   ? CmfResume::kContinued
               : kept.empty() ? CmfResume::kDamaged
                              : CmfResume::kContinuedPart;
    return kept;
  }

  // Without directory growth and tensors whose size only encoding tells: at least so much.
  uint64_t PlannedSize() const {
    return data_.offset + next_offset_ + plan_.masks.size() + plan_.tokenizer.size() +
           plan_.index.size();
  }

  void RemovePartial() {
    unlink(partial_.c_str());
    unlink(journal_path_.c_str());
  }

  CmfPlan plan_;
  CmfWriterOptions options_;
  std::string dst_;     // as asked
  std::string target_;  // behind links
  std::string partial_;
  std::string journal_path_;
  std::string header_;
  cmf::Section data_;
  std::vector<cmf::DirectoryRecord> records_;
  size_t placed_ = 0;         // tensors that have an offset
  uint64_t next_offset_ = 0;  // end of the last of them
  FileDescriptor file_;
  std::optional<WriteJournal> journal_;
  mutable std::mutex mutex_;  // guards state_, records_, journal_, bytes_written_
  std::vector<State> state_;
  uint64_t bytes_written_ = 0;
  CmfResume resumed_ = CmfResume::kNothing;
  bool finished_ = false;
};

}  // namespace

std::string HeaderText(const CmfPlan& plan) {
  Json header = Json::object();
  header["format"] = "cmf";
  header["version"] = cmf::kVersion;
  for (const auto& [key, value] : plan.header.items()) {
    if (key != "format" && key != "version" && key != "section_hashes") header[key] = value;
  }
  Json hashes = Json::object();
  const auto add = [&hashes](const char* key, const std::vector<uint8_t>& section) {
    if (!section.empty()) hashes[key] = HashToHex(HashBytes(section));
  };
  add("masks", plan.masks);
  add("vocab", plan.tokenizer);
  add("index", plan.index);
  if (!hashes.empty()) header["section_hashes"] = std::move(hashes);
  return header.dump();
}

std::unique_ptr<CmfWriter> CmfWriter::Create(CmfPlan plan, const std::string& dst,
                                             const CmfWriterOptions& options) {
  return std::make_unique<Writer>(std::move(plan), dst, options);
}

}  // namespace moewe::formats
