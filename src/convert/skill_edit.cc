#include "convert/skill_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "convert/dtype_choice.h"
#include "convert/encode.h"
#include "convert/range_check.h"
#include "convert/skill_graft.h"
#include "engine/score.h"
#include "formats/cmf/skills.h"
#include "formats/made_bytes.h"
#include "model/checkpoint_view.h"
#include "model/weights.h"
#include "moewe/error.h"
#include "platform/mapped_file.h"
#include "platform/mapped_pages.h"

namespace moewe::convert {
namespace {

using formats::CmfAppender;
using formats::CmfFile;
using formats::TensorView;
using formats::cmf::SkillRecord;
using formats::cmf::SkillTensorName;

// The file with the tensors of a skill that is not committed yet in place of the backbone's.
class SkilledFile : public model::CheckpointView {
 public:
  SkilledFile(std::shared_ptr<const formats::Checkpoint> file, const CmfAppender& appender,
              const std::string& id)
      : CheckpointView(std::move(file)), grown_(MappedFile::Open(appender.path())) {
    const uint64_t data = appender.file().contents().envelope.data.offset;
    std::unordered_map<std::string, const formats::cmf::DirectoryRecord*> of_skill;
    for (const formats::cmf::DirectoryRecord& record : appender.added()) {
      of_skill.emplace(record.name, &record);
    }
    index_.Reserve(base().tensors().size());
    for (const TensorView& tensor : base().tensors()) {
      TensorView view = tensor;
      if (const auto found = of_skill.find(SkillTensorName(id, tensor.name));
          found != of_skill.end()) {
        const formats::cmf::DirectoryRecord& record = *found->second;
        view.dtype = record.dtype;
        view.file_offset = data + record.offset;
        view.bytes = grown_->bytes().subspan(static_cast<size_t>(view.file_offset),
                                             static_cast<size_t>(record.nbytes));
        view.hash = record.hash;
      }
      index_.Add(std::move(view));
    }
  }

  void CheckReadable() const override {
    CheckpointView::CheckReadable();
    grown_->Check();
  }

 private:
  std::unique_ptr<MappedFile> grown_;
};

// For whoever shares what somebody else owns longer.
template <typename T>
std::shared_ptr<const T> Borrow(const T& object) {
  return {std::shared_ptr<const T>(), &object};
}

void CheckIsModel(const CmfFile& file) {
  if (!file.contents().header.standalone_skill) return;
  throw Error(ErrorCode::kUnsupported,
              "is a standalone skill; skills are added to the model that it is applied to",
              {file.files().front(), "header.skills"});
}

class Adder {
 public:
  Adder(CmfAppender* appender, const formats::Checkpoint& donor, const SkillAddOptions& options,
        ThreadPool& pool)
      : appender_(*appender),
        file_(appender->file()),
        donor_(donor),
        options_(options),
        pool_(pool) {}

  SkillAddResult Run() {
    CheckIsModel(file_);
    Json header = file_.contents().header.json;
    SkillRecord record = NewRecord(header);
    const std::vector<GraftCandidate> candidates = PairWithDonor(file_, donor_, options_.layers);
    Note("the subspace of the texts");
    record.selection =
        FitSubspace(Borrow<formats::Checkpoint>(file_), options_.texts, options_.subspace, &pool_);
    Graft(candidates, &record);
    if (!options_.eval.empty()) {
      Note("perplexity of the held-out text");
      record.quality = Quality();
    }
    record.json = {{"provenance",
                    {{"tool", "moewe skill add"},
                     {"version", MOEWE_VERSION},
                     {"donor", DonorName()},
                     {"min_delta", options_.min_delta},
                     {"tensors", result_.tensors}}}};
    donor_.CheckReadable();
    result_.record = formats::cmf::SkillToJson(record);
    if (!header.contains("skills") || !header["skills"].is_array())
      header["skills"] = Json::array();
    header["skills"].push_back(result_.record);
    appender_.Commit(header);
    return std::move(result_);
  }

 private:
  void Note(const std::string& line) const {
    if (options_.note) options_.note(line);
  }

  // Checked before the work: what the reader would not take does not get written.
  SkillRecord NewRecord(const Json& header) const {
    const std::string& path = appender_.path();
    const auto& skills = file_.contents().header.skills;
    if (formats::cmf::FindSkill(skills, options_.id) != nullptr) {
      throw Error(ErrorCode::kUsage, fmt::format("there is a skill '{}' already", options_.id),
                  {path, "header.skills"});
    }
    for (const char* word : {"none", "auto"}) {
      if (options_.id != word) continue;
      throw Error(ErrorCode::kUsage, fmt::format("'{}' means something else to --skill", word));
    }
    // "ID=0.6,ID=0.4" chooses several.
    if (options_.id.find_first_of("=,") != std::string::npos) {
      throw Error(ErrorCode::kUsage, "an id contains neither '=' nor ','");
    }
    SkillRecord record;
    record.id = options_.id;
    record.name = options_.name;
    record.input_mask_task = options_.input_mask_task;
    const auto& masks = file_.contents().masks;
    const bool known = record.input_mask_task.empty() ||
                       std::any_of(masks.masks.begin(), masks.masks.end(), [&](const auto& mask) {
                         return mask.name == record.input_mask_task;
                       });
    if (!known) {
      throw Error(ErrorCode::kUnknownName,
                  fmt::format("there is no mask '{}': {}", record.input_mask_task,
                              formats::cmf::MaskNames(masks)),
                  {path, "masks"});
    }
    if (options_.subspace.phi_layer >= file_.contents().header.num_layers) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("there is no layer {}; the model has {}", options_.subspace.phi_layer,
                              file_.contents().header.num_layers));
    }
    try {
      formats::cmf::ParseSkills(Json::array({formats::cmf::SkillToJson(record)}),
                                {header["arch"]["hidden_size"], header["arch"]["num_layers"]},
                                path);
    } catch (const Error& error) {
      throw Error(ErrorCode::kUsage, "the skill can't be called that: " + error.message());
    }
    return record;
  }

  // Encodes and appends whatever changed enough.
  void Graft(const std::vector<GraftCandidate>& candidates, SkillRecord* record) {
    std::set<uint32_t> layers;
    uint64_t total = 0;
    uint64_t done = 0;
    for (const GraftCandidate& candidate : candidates) total += candidate.donor.bytes.size();
    for (const GraftCandidate& candidate : candidates) {
      if (options_.cancel != nullptr && *options_.cancel) {
        throw Error(ErrorCode::kInterrupted, "stopped; the file is as it was");
      }
      const TensorView& donor = candidate.donor;
      const Where where{donor_.files()[donor.file_index], fmt::format("tensor '{}'", donor.name),
                        donor.file_offset};
      const formats::HeldBytes held(donor);
      model::VerifyTensor(donor_, donor);
      model::VerifyTensor(file_, candidate.backbone);
      const double change = RelativeChange(candidate, options_.min_delta, pool_, where);
      ++result_.compared;
      if (change > options_.min_delta) {
        Append(candidate, where);
        if (candidate.layer) layers.insert(*candidate.layer);
      } else if (change > result_.largest_left) {
        result_.largest_left = change;
        result_.largest_left_name = donor.name;
      }
      ForgetPages(donor.bytes);
      done += donor.bytes.size();
      if (options_.progress) options_.progress(done, total, donor.name);
    }
    record->layers.assign(layers.begin(), layers.end());
    if (result_.tensors > 0) return;
    throw Error(
        ErrorCode::kUsage,
        result_.largest_left > 0.0
            ? fmt::format("no tensor changed by more than {}; the most is at most {:.2g}, of '{}'",
                          options_.min_delta, result_.largest_left, result_.largest_left_name)
            : std::string("the donor is not different from the base"),
        {donor_.files().front(), ""});
  }

  void Append(const GraftCandidate& candidate, const Where& where) {
    const TensorView& donor = candidate.donor;
    const DType dtype =
        options_.dtype ? ChooseDType(donor, *options_.dtype) : candidate.backbone.dtype;
    const std::string name = SkillTensorName(options_.id, candidate.backbone.name);
    std::vector<uint8_t> encoded;
    Bytes bytes = donor.bytes;
    if (dtype != donor.dtype) {
      encoded = EncodeTensor(donor, dtype, {}, pool_, where);
      CheckRange(donor, dtype, encoded, pool_, where);
      bytes = encoded;
    }
    appender_.Add(name, dtype, candidate.backbone.shape, bytes);
    ++result_.tensors;
    result_.bytes += bytes.size();
  }

  Json Quality() const {
    const double backbone = Perplexity(Borrow<formats::Checkpoint>(file_), "none");
    const std::string& task = options_.input_mask_task;
    const double overlaid = Perplexity(
        std::make_shared<SkilledFile>(Borrow<formats::Checkpoint>(file_), appender_, options_.id),
        task.empty() ? "none" : task);
    return {{"metric", "ppl"},
            {"backbone", backbone},
            {"overlaid", overlaid},
            {"dataset_sha256", options_.eval_sha256},
            {"tokens", options_.eval.size()},
            {"masked", !task.empty()}};
  }

  // As `moewe ppl` measures it if nothing else is asked.
  double Perplexity(std::shared_ptr<const formats::Checkpoint> checkpoint,
                    const std::string& task) const {
    model::LoadOptions load;
    load.task = task;
    const auto model = model::Model::Load(std::move(checkpoint), load, &pool_);
    engine::ScoreOptions score;
    score.window = std::min(score.window, model->config().max_position_embeddings);
    score.cancel = options_.cancel;
    model::KvPool kv(model->config(), model::KvType::kF16, model::BlocksFor(score.window));
    return std::exp(engine::ScoreTokens(model.get(), &kv, &pool_, options_.eval, score).MeanNll());
  }

  std::string DonorName() const {
    std::string name = donor_.files().front();
    if (donor_.kind() == formats::CheckpointKind::kHuggingFace) {
      name = name.substr(0, name.find_last_of('/'));  // a model is called by its folder
    }
    return name.substr(name.find_last_of('/') + 1);
  }

  CmfAppender& appender_;
  const CmfFile& file_;
  const formats::Checkpoint& donor_;
  const SkillAddOptions& options_;
  ThreadPool& pool_;
  SkillAddResult result_;
};

}  // namespace

uint32_t PhiLayer(uint64_t num_layers) {
  return num_layers == 0 ? 0 : static_cast<uint32_t>((2 * num_layers - 1) / 3);
}

SkillAddResult AddSkill(CmfAppender* appender, const formats::Checkpoint& donor,
                        const SkillAddOptions& options, ThreadPool& pool) {
  return Adder(appender, donor, options, pool).Run();
}

uint64_t RemoveSkill(CmfAppender* appender, const std::string& id) {
  const CmfFile& file = appender->file();
  CheckIsModel(file);
  const auto& skills = file.contents().header.skills;
  const SkillRecord* record = formats::cmf::FindSkill(skills, id);
  if (record == nullptr) {
    throw Error(ErrorCode::kUnknownName,
                fmt::format("there is no skill '{}': the file has {}", id,
                            formats::cmf::SkillNames(skills)),
                {appender->path(), "header.skills"});
  }
  uint64_t bytes = 0;
  const auto is_backbone = [&](std::string_view name) { return file.Find(name) != nullptr; };
  for (const TensorView& tensor : file.tensors()) {
    const auto owner = formats::cmf::SkillOfTensor(skills, tensor.name, is_backbone);
    if (!owner || owner->skill != record) continue;
    if (tensor.file_index != 0) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("shards other than the first hold tensors of skill '{}', and only "
                              "the first one is changed in place: make one file of the set (moewe "
                              "compact SET ONE.cmf), remove the skill there and divide it again "
                              "(moewe shard)",
                              id),
                  {file.files()[tensor.file_index], fmt::format("tensor '{}'", tensor.name)});
    }
    appender->Remove(tensor.name);
    bytes += tensor.bytes.size();
  }
  Json header = file.contents().header.json;
  Json& list = header["skills"];
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i]["id"] == id) list.erase(i--);
  }
  appender->Commit(header);
  return bytes;
}

}  // namespace moewe::convert
