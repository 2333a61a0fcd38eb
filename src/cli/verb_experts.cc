// moewe experts: which experts a task uses, and masks that follow from it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "convert/expert_stats.h"
#include "convert/mask_edit.h"
#include "moewe/error.h"
#include "platform/atomic_file.h"
#include "text/tokenizer.h"

namespace moewe::cli {
namespace {

constexpr uint64_t kLargestInput = uint64_t{1} << 30;

struct Flags {
  RunFlags run;
  std::string model, out, src, dst, name;
  std::vector<std::string> texts, stats;
  size_t window = 512;
  double cover = 0.0;
  bool make_default = false;
};

convert::ExpertCounts ReadCounts(const std::vector<std::string>& files) {
  convert::ExpertCounts counts;
  for (const std::string& file : files) {
    const std::vector<uint8_t> bytes = ReadWholeFile(file, kLargestInput);
    convert::AddCounts(convert::ExpertCountsFromJson(ParseJson(bytes, file, "statistics"), file),
                       file, &counts);
  }
  return counts;
}

int Stats(Flags flags, const Globals& globals) {
  // What a mask forbids would not be counted; statistics are of the whole model unless asked.
  if (flags.run.task.empty()) flags.run.task = "none";
  RefuseAutoSkill(flags.run, "experts stats");
  const OpenModel open = OpenForRun(flags.model, flags.run);
  const std::string& file = open.checkpoint->files().front();
  if (!open.model->config().has_moe) {
    throw Error(ErrorCode::kUnsupported, "the model has no experts", {file, "arch.moe"});
  }
  if (open.checkpoint->tokenizer_json().empty()) {
    throw Error(ErrorCode::kUnsupported, "the model has no tokenizer", {file, "tokenizer"});
  }
  const auto tokenizer = text::Tokenizer::FromJson(open.checkpoint->tokenizer_json(), file);
  convert::ExpertCounts counts = ReadCounts(flags.stats);
  const size_t window = std::min<size_t>(flags.window, open.context);
  const std::atomic<bool>& interrupted = CatchInterrupts();
  uint64_t tokens = 0;
  for (const std::string& path : flags.texts) {
    const std::vector<uint8_t> bytes = ReadWholeFile(path, kLargestInput);
    const std::vector<model::TokenId> ids = tokenizer->Encode(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, /*add_special_tokens=*/false);
    convert::CountExperts(open.model.get(), ids, window, open.chunk, open.kv_type, interrupted,
                          &counts);
    tokens += ids.size();
    if (!globals.quiet) LogInfo(fmt::format("{}: {} tokens", path, ids.size()));
  }
  open.checkpoint->CheckReadable();
  AtomicFile out(flags.out);
  out.Write(convert::ExpertCountsToJson(counts).dump() + "\n");
  out.Commit();
  if (globals.json && flags.out != "-") {
    PrintJson({{"out", flags.out}, {"tokens", tokens}, {"layers", counts.size()}});
  }
  return 0;
}

int Mask(const Flags& flags, const Globals& globals) {
  const std::unique_ptr<formats::CmfFile> source = formats::CmfFile::Open(flags.src);
  const formats::cmf::Header& header = source->contents().header;
  const convert::MaskDescription mask = convert::ExpertMask(
      ReadCounts(flags.stats), flags.cover, flags.name, header, flags.stats.front());
  convert::AddMask(*source, mask, flags.make_default, flags.dst);
  Json kept = Json::object();
  for (size_t layer = 0; layer < mask.rows.experts.size(); ++layer) {
    const uint64_t live = formats::cmf::LiveBits(mask.rows.experts[layer]);
    if (live < header.num_experts) kept[std::to_string(layer)] = live;
  }
  if (!globals.quiet) {
    LogInfo(fmt::format("wrote {} with mask '{}': experts kept of {} by layer: {}", flags.dst,
                        flags.name, header.num_experts, kept.dump()));
  }
  if (globals.json) {
    PrintJson({{"file", flags.dst},
               {"name", flags.name},
               {"num_experts", header.num_experts},
               {"kept_per_layer", kept}});
  }
  return 0;
}

}  // namespace

Action AddExperts(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* stats = verb.add_subcommand("stats", "count which experts texts are routed to");
  stats->fallthrough();
  stats->add_option("MODEL", flags->model, "model file or folder")->required();
  stats->add_option("TEXT", flags->texts, "text files")->required();
  stats->add_option("--out", flags->out, "JSON file for the counts; - is stdout")->required();
  stats->add_option("--add", flags->stats, "counts to go on from; repeatable")
      ->allow_extra_args(false);
  stats->add_option("--window", flags->window, "tokens a context takes")
      ->check(CLI::Range(1, 1 << 20));
  AddRunFlags(stats, &flags->run);
  CLI::App* mask = verb.add_subcommand("mask", "a task mask of the experts that cover a share");
  mask->fallthrough();
  mask->add_option("SRC", flags->src, "a .cmf file")->required();
  mask->add_option("DST", flags->dst, "the .cmf with the mask")->required();
  mask->add_option("--stats", flags->stats, "counts of experts stats; several are added up")
      ->required()
      ->allow_extra_args(false);
  mask->add_option("--cover", flags->cover, "share of the routing to keep, 0.95 say")->required();
  mask->add_option("--name", flags->name, "what --task will call it")->required();
  mask->add_flag("--default", flags->make_default, "active without --task");
  return [=, &globals] {
    if (stats->parsed()) return Stats(*flags, globals);
    if (mask->parsed()) return Mask(*flags, globals);
    throw Error(ErrorCode::kUsage, "say what to do: experts stats or experts mask");
  };
}

}  // namespace moewe::cli
