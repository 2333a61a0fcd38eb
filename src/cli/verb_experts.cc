// moewe experts: which experts a task uses, and the masks and smaller files that follow from it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/size.h"
#include "cli/change_file.h"
#include "cli/experts_simulate.h"
#include "cli/interrupt.h"
#include "cli/number_flags.h"
#include "cli/run_flags.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "convert/convert.h"
#include "convert/expert_stats.h"
#include "convert/mask_edit.h"
#include "experts/trace_file.h"
#include "moewe/error.h"
#include "platform/atomic_file.h"
#include "platform/paths.h"
#include "text/tokenizer.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  std::string model, out, trace, src, dst, name;
  std::vector<std::string> texts, stats;
  size_t window = 512;
  double cover = 0.0;
  bool make_default = false;
  bool resume = false;
  std::string shard_max;
};

// For progress: a pipe has none.
uint64_t TextSize(const std::string& path) {
  return path != "-" && IsRegularFile(path) ? FileSize(path) : 0;
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
  convert::ExpertCounts counts;
  if (!flags.stats.empty()) {
    counts = convert::ReadExpertCounts(flags.stats).counts;
    convert::CheckCounts(counts, convert::ExpertsByLayer(*open.checkpoint), flags.stats.front());
  }
  const size_t window = std::min<size_t>(flags.window, open.context);
  const std::atomic<bool>& interrupted = CatchInterrupts();
  uint64_t all_bytes = 0;
  for (const std::string& path : flags.texts) all_bytes += TextSize(path);
  Progress progress("experts stats", all_bytes, globals.quiet ? nullptr : stderr);
  std::optional<experts::TraceWriter> trace;
  convert::RoutingListener on_routing;
  if (!flags.trace.empty()) {
    const std::map<uint32_t, uint32_t> experts = convert::ExpertsByLayer(*open.checkpoint);
    uint64_t all_experts = 0;
    for (const auto& [layer, count] : experts) all_experts += count;
    trace.emplace(flags.trace, open.model->config().num_layers, experts,
                  open.model->expert_bytes_total() / all_experts);
    on_routing = [&](uint32_t visit, std::span<const uint32_t> ids, size_t top_k) {
      trace->Add(visit, ids, top_k);
    };
  }
  uint64_t tokens = 0;
  uint64_t bytes_done = 0;
  for (const std::string& path : flags.texts) {
    const std::string text = ReadUtf8File(path);
    const std::vector<model::TokenId> ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
    const auto on_step = [&](size_t done) {
      if (interrupted) throw Error(ErrorCode::kInterrupted, "stopped");
      progress.Update(bytes_done + text.size() * done / ids.size(), path);
    };
    convert::CountExperts(open.model.get(), ids, window, open.chunk, open.kv_type, on_step,
                          on_routing, &counts);
    tokens += ids.size();
    bytes_done += text.size();
    progress.Clear();
    if (!globals.quiet) LogInfo(fmt::format("{}: {} tokens", path, ids.size()));
  }
  open.checkpoint->CheckReadable();
  if (trace) trace->Commit();
  AtomicFile out(flags.out);
  out.Write(convert::ExpertCountsToJson(counts).dump() + "\n");
  out.Commit();
  if (globals.json && flags.out != "-") {
    PrintJson({{"out", flags.out}, {"tokens", tokens}, {"layers", counts.size()}});
  }
  return 0;
}

int Mask(const Flags& flags, const Globals& globals) {
  const auto [lock, source] = OpenToReplace(flags.src);
  const formats::cmf::Header& header = source->contents().header;
  const convert::MaskDescription mask =
      convert::ExpertMask(*source, convert::ReadExpertCounts(flags.stats).counts, flags.cover,
                          flags.name, flags.stats.front());
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

int Defrag(const Flags& flags, const Globals& globals) {
  const std::unique_ptr<formats::CmfFile> source = OpenCmf(flags.src);
  const bool embedded = flags.stats.empty();
  const convert::CountsFile counts =
      embedded ? convert::EmbeddedCounts(*source) : convert::ReadExpertCounts(flags.stats);
  convert::ConvertOptions options;
  options.expert_cut = convert::PlanExpertCut(*source, counts, flags.cover,
                                              embedded ? flags.src : flags.stats.front());
  options.resume = flags.resume;
  if (!flags.shard_max.empty()) options.shard_max = ParseSize(flags.shard_max, "shard size");
  options.warning = [](const std::string& line) { LogWarning(line); };
  options.note = [&](const std::string& line) {
    if (!globals.quiet) LogInfo(line);
  };
  const std::atomic<bool>& interrupted = CatchInterrupts();
  std::optional<Progress> bar;
  options.progress = [&](const convert::ConvertProgress& state) {
    if (interrupted) {
      throw Error(ErrorCode::kInterrupted, "stopped; --resume continues", {flags.dst, ""});
    }
    if (!bar) bar.emplace("experts defrag", state.bytes_total, globals.quiet ? nullptr : stderr);
    bar->Update(state.bytes, state.name);
  };
  ThreadPool pool(1);  // nothing is encoded
  const convert::ConvertResult result = convert::ConvertToCmf(*source, flags.dst, options, pool);
  bar.reset();
  uint64_t before = 0;
  uint64_t after = 0;
  for (const std::string& file : source->files()) before += FileSize(file);
  for (const std::string& file : result.files) after += FileSize(file);
  Json kept = Json::object();
  for (const auto& [layer, experts] : options.expert_cut->kept) {
    kept[std::to_string(layer)] = experts->size();
  }
  if (!globals.quiet) {
    LogInfo(fmt::format("wrote {}: {} experts left out, {} of {}; kept by layer: {}",
                        result.files.front(), options.expert_cut->dropped, FormatSize(after),
                        FormatSize(before), kept.dump()));
  }
  if (globals.json) {
    PrintJson({{"file", result.files.front()},
               {"files", result.files},
               {"tensors", result.tensors},
               {"bytes", after},
               {"bytes_before", before},
               {"experts_dropped", options.expert_cut->dropped},
               {"kept_per_layer", kept}});
  }
  return 0;
}

}  // namespace

Action AddExperts(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  CLI::App* stats = verb.add_subcommand("stats", "count which experts texts are routed to");
  stats->footer("Example: moewe experts stats demo.cmf code.txt --out code.json");
  stats->fallthrough();
  stats->add_option("MODEL", flags->model, "model file or folder")->required();
  stats->add_option("TEXT", flags->texts, "text files")->required();
  stats->add_option("--out", flags->out, "JSON file for the counts; - is stdout")->required();
  stats->add_option("--trace", flags->trace, "file for every choice in order: experts simulate");
  stats->add_option("--add", flags->stats, "counts to go on from; repeatable")
      ->allow_extra_args(false);
  AddNumber(stats, "--window", &flags->window, 1, 1 << 20, "tokens a context takes");
  AddRunFlags(stats, &flags->run);
  CLI::App* mask = verb.add_subcommand("mask", "a task mask of the experts that cover a share");
  mask->footer(
      "Example: moewe experts mask demo.cmf code.cmf --stats code.json --cover 0.95 --name code");
  mask->fallthrough();
  mask->add_option("SRC", flags->src, "a .cmf file")->required();
  mask->add_option("DST", flags->dst, "the .cmf with the mask")->required();
  mask->add_option("--stats", flags->stats, "counts of experts stats; several are added up")
      ->required()
      ->allow_extra_args(false);
  AddNumber(mask, "--cover", &flags->cover, 0.0, 1.0, "share of the routing to keep, 0.95 say")
      ->required();
  mask->add_option("--name", flags->name, "what --task will call it")->required();
  mask->add_flag("--default", flags->make_default, "active without --task");
  CLI::App* defrag = verb.add_subcommand("defrag", "leave out the experts that a task never needs");
  defrag->footer("Example: moewe experts defrag demo.cmf code.cmf --stats code.json --cover 0.95");
  defrag->fallthrough();
  defrag->add_option("SRC", flags->src, "a .cmf file")->required();
  defrag->add_option("DST", flags->dst, "the smaller .cmf")->required();
  defrag
      ->add_option("--stats", flags->stats,
                   "counts of experts stats, added up; default: those that an earlier cut kept")
      ->allow_extra_args(false);
  AddNumber(defrag, "--cover", &flags->cover, 0.0, 1.0, "share of the routing to keep, 0.95 say")
      ->required();
  defrag->add_option("--shard-max", flags->shard_max, "divide into files of at most this size");
  defrag->add_flag("--resume", flags->resume, "continue an interrupted run");
  CLI::App* simulate =
      verb.add_subcommand("simulate", "hit rates of expert caches over a recorded run");
  simulate->footer("Example: moewe experts simulate trace.bin --memory 2GiB");
  simulate->fallthrough();
  auto simulation = std::make_shared<SimulateFlags>();
  AddSimulateFlags(simulate, simulation.get());
  return [=, &globals] {
    if (stats->parsed()) return Stats(*flags, globals);
    if (mask->parsed()) return Mask(*flags, globals);
    if (defrag->parsed()) return Defrag(*flags, globals);
    if (simulate->parsed()) return SimulateExperts(*simulation, globals);
    throw Error(ErrorCode::kUsage, "say what to do: experts stats, mask, defrag or simulate");
  };
}

}  // namespace moewe::cli
