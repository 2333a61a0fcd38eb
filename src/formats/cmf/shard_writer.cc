#include "formats/cmf/shard_writer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/hash64.h"
#include "base/size.h"
#include "formats/cmf/writer_layout.h"
#include "moewe/error.h"
#include "platform/file_io.h"
#include "platform/write_target.h"

namespace moewe::formats {
namespace {

constexpr char kSetKey[] = "shard_set";
constexpr size_t kMostShards = 500;  // all of them are open while they are written

// The size of a file that grows by one tensor after the other.
class GrowingFile {
 public:
  GrowingFile(uint64_t header, uint64_t sections) : header_(header), sections_(sections) {}

  // With one more tensor.
  uint64_t SizeWith(const CmfPlanEntry& entry) const {
    GrowingFile grown = *this;
    grown.Add(entry);
    return grown.Size();
  }
  uint64_t Size() const {
    return DataOffset(header_, tensors_, names_) + AlignUp(end_, cmf::kTensorAlignment) + sections_;
  }
  void Add(const CmfPlanEntry& entry) {
    end_ = TensorOffset(end_, *entry.nbytes) + *entry.nbytes;
    names_ += entry.name.size();
    ++tensors_;
  }
  bool empty() const { return tensors_ == 0; }

 private:
  uint64_t header_;
  uint64_t sections_;
  uint64_t tensors_ = 0;
  uint64_t names_ = 0;
  uint64_t end_ = 0;  // of the last tensor, in the data section
};

uint64_t FileSize(const CmfPlan& plan) {
  GrowingFile file(HeaderText(plan).size(),
                   plan.masks.size() + plan.tokenizer.size() + plan.index.size());
  for (const CmfPlanEntry& entry : plan.tensors) file.Add(entry);
  return file.Size();
}

// Throws Error{kNoSpace} if all files together, without what an earlier run has of them, are more
// than the disk can take: before any of them is begun.
void CheckSpaceForAll(const std::vector<CmfPlan>& plans, const std::string& dst) {
  uint64_t all = 0;
  uint64_t missing = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    const uint64_t size = FileSize(plans[i]);
    struct stat status = {};
    const std::string partial = BehindLinks(ShardPath(dst, i + 1, plans.size())) + ".partial";
    const uint64_t there = lstat(partial.c_str(), &status) == 0 && S_ISREG(status.st_mode)
                               ? static_cast<uint64_t>(status.st_blocks) * 512
                               : 0;
    all += size;
    missing += size - std::min(size, there);
  }
  const size_t slash = dst.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : dst.substr(0, slash + 1);
  const FileDescriptor opened = FileDescriptor::OpenForReading(folder);
  const std::optional<uint64_t> free = FreeSpace(opened.get());
  if (!free || missing <= *free) return;
  throw Error(ErrorCode::kNoSpace,
              fmt::format("the {} files take {} ({} bytes); {} ({} bytes) are free on their disk",
                          plans.size(), FormatSize(all), all, FormatSize(*free), *free),
              {dst, ""});
}

nlohmann::ordered_json ShardHeader(nlohmann::ordered_json header, size_t no, size_t count) {
  header["shard"] = {{"no", no}, {"count", count}};
  header[kSetKey] = HashToHex(0);
  if (no == 1) return header;
  header["tokenizer_config"] = nullptr;
  if (header.contains("skills")) header["skills"] = nlohmann::ordered_json::array();
  return header;
}

class ShardWriter : public CmfWriter {
 public:
  ShardWriter(std::vector<CmfPlan> plans, const std::string& dst, const CmfWriterOptions& options) {
    CheckSpaceForAll(plans, dst);
    for (size_t shard = 0; shard < plans.size(); ++shard) {
      for (size_t i = 0; i < plans[shard].tensors.size(); ++i) places_.push_back({shard, i});
      writers_.push_back(CmfWriter::Create(std::move(plans[shard]),
                                           ShardPath(dst, shard + 1, plans.size()), options));
    }
  }

  // The least of what the shards say: a set is continued if all of it is. One of which an earlier
  // run had nothing yet says nothing.
  CmfResume resumed() const override {
    CmfResume all = CmfResume::kNothing;
    for (const auto& writer : writers_) {
      const CmfResume one = writer->resumed();
      if (one == all || one == CmfResume::kNothing) continue;
      const auto keeps = [](CmfResume what) {
        return what == CmfResume::kContinued || what == CmfResume::kContinuedPart;
      };
      if (all == CmfResume::kNothing) {
        all = one;
      } else {
        all = keeps(all) || keeps(one) ? CmfResume::kContinuedPart : std::max(all, one);
      }
    }
    return all;
  }
  size_t size() const override { return places_.size(); }
  bool done(size_t index) const override {
    return writers_[places_.at(index).shard]->done(places_[index].index);
  }
  void Write(size_t index, Bytes bytes) override {
    writers_[places_.at(index).shard]->Write(places_[index].index, bytes);
  }
  void Seal() override {
    const std::string set = HashToHex(ContentHash());
    for (const auto& writer : writers_) {
      writer->SetHeaderText(kSetKey, set);
      writer->Seal();
    }
  }
  // The first shard last: without it nothing of the set opens.
  void Publish() override {
    for (size_t i = writers_.size(); i-- > 0;) writers_[i]->Publish();
  }

  uint64_t ContentHash() const override {
    Hash64 hash;
    for (const auto& writer : writers_) {
      const std::string part = HashToHex(writer->ContentHash());
      hash.Update({reinterpret_cast<const uint8_t*>(part.data()), part.size()});
    }
    return hash.Digest();
  }
  void SetHeaderText(const std::string& key, const std::string& value) override {
    for (const auto& writer : writers_) writer->SetHeaderText(key, value);
  }
  uint64_t bytes_written() const override {
    uint64_t sum = 0;
    for (const auto& writer : writers_) sum += writer->bytes_written();
    return sum;
  }
  std::vector<std::string> paths() const override {
    std::vector<std::string> paths;
    for (const auto& writer : writers_) paths.push_back(writer->paths().front());
    return paths;
  }

 private:
  struct Place {
    size_t shard;
    size_t index;
  };
  std::vector<Place> places_;
  std::vector<std::unique_ptr<CmfWriter>> writers_;
};

}  // namespace

std::string ShardPath(const std::string& dst, size_t no, size_t count) {
  if (count == 1) return dst;
  const std::string stem = dst.ends_with(".cmf") ? dst.substr(0, dst.size() - 4) : dst;
  return fmt::format("{}-{:05}-of-{:05}.cmf", stem, no, count);
}

std::vector<CmfPlan> SplitPlan(CmfPlan plan, uint64_t max_bytes) {
  // Headers as long as they may get, so that no file outgrows the limit by the digits of a count.
  constexpr size_t kWidest = 99999;
  const auto header_size = [&](bool first) {
    CmfPlan probe;
    probe.header = ShardHeader(plan.header, first ? 1 : kWidest, kWidest);
    if (first) {
      probe.header["shard"]["no"] = kWidest;
      probe.masks = plan.masks;
      probe.tokenizer = plan.tokenizer;
      probe.index = plan.index;
    }
    return HeaderText(probe).size();
  };
  const uint64_t sections = plan.masks.size() + plan.tokenizer.size() + plan.index.size();
  GrowingFile file(header_size(true), sections);
  const uint64_t other_header = header_size(false);
  std::vector<size_t> first_of_shard = {0};
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const CmfPlanEntry& entry = plan.tensors[i];
    if (!entry.nbytes) throw Error(ErrorCode::kInternal, "shards need sizes", {"", entry.name});
    if (!file.empty() && file.SizeWith(entry) > max_bytes) {
      file = GrowingFile(other_header, 0);
      first_of_shard.push_back(i);
    }
    file.Add(entry);
  }
  const size_t count = first_of_shard.size();
  if (count > kMostShards) {
    throw Error(ErrorCode::kUsage,
                fmt::format("there would be {} files of {} bytes; at most {} are possible", count,
                            max_bytes, kMostShards));
  }
  std::vector<CmfPlan> shards;
  if (count == 1) {
    shards.push_back(std::move(plan));
    return shards;
  }
  first_of_shard.push_back(plan.tensors.size());
  for (size_t shard = 0; shard < count; ++shard) {
    CmfPlan part;
    part.header = ShardHeader(plan.header, shard + 1, count);
    const auto tensors = plan.tensors.begin();
    part.tensors.assign(tensors + static_cast<ptrdiff_t>(first_of_shard[shard]),
                        tensors + static_cast<ptrdiff_t>(first_of_shard[shard + 1]));
    part.source_id = plan.source_id;
    part.encoding_id = plan.encoding_id;
    shards.push_back(std::move(part));
  }
  shards[0].masks = std::move(plan.masks);
  shards[0].tokenizer = std::move(plan.tokenizer);
  shards[0].index = std::move(plan.index);
  return shards;
}

std::unique_ptr<CmfWriter> CreateShardWriter(std::vector<CmfPlan> plans, const std::string& dst,
                                             const CmfWriterOptions& options) {
  if (plans.size() == 1) return CmfWriter::Create(std::move(plans[0]), dst, options);
  return std::make_unique<ShardWriter>(std::move(plans), dst, options);
}

}  // namespace moewe::formats
