// `convert`, `requant`, `compact` and `shard`: one checkpoint written as another CMF file.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "base/progress.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/number_flags.h"
#include "cli/verbs.h"
#include "convert/convert.h"
#include "convert/dtype_choice.h"
#include "moewe/error.h"
#include "platform/paths.h"

namespace moewe::cli {
namespace {

struct Flags {
  const char* verb = "";
  std::string src;
  std::string dst;
  std::string to;
  std::string quant;
  std::vector<std::string> tensors;
  std::string shard_max;
  float mean_bits = 4.25f;
  double keep = 0.01;
  bool diffuse = false;
  bool no_scale_search = false;
  std::string route_stats;
  std::string defrag_folder;
  std::string defrag_task;
  bool resume = false;
  bool dry_run = false;
  int threads = 0;
};

// DST's extension says what it becomes, unless --to does.
void CheckTarget(const Flags& flags) {
  std::string target = flags.to;
  if (target.empty()) {
    const std::string extension = std::filesystem::path(flags.dst).extension().string();
    if (!extension.empty()) target = extension.substr(1);
  }
  if (target == "cmf") return;
  throw Error(ErrorCode::kUsage,
              (target.empty() ? "DST has no extension that says what to make"
                              : "'" + target + "' cannot be made") +
                  std::string("; name it .cmf or give --to cmf"),
              {flags.dst, ""});
}

convert::ConvertOptions OptionsFrom(const Flags& flags) {
  convert::ConvertOptions options;
  options.resume = flags.resume;
  if (!flags.quant.empty()) options.quant = convert::ParseQuant(flags.quant);
  for (const std::string& rule : flags.tensors) {
    options.tensor_rules.push_back(convert::ParseTensorRule(rule));
  }
  quant::EncodeOptions& encode = options.encode.options;
  encode.mean_bits = flags.mean_bits;
  encode.keep = flags.keep;
  encode.diffuse = flags.diffuse;
  encode.search_scales = !flags.no_scale_search;
  if (!flags.route_stats.empty()) {
    options.encode.route_counts = convert::ReadExpertCounts({&flags.route_stats, 1}).counts;
  }
  options.defrag_folder = flags.defrag_folder;
  options.defrag_task = flags.defrag_task;
  if (!flags.shard_max.empty()) {
    options.shard_max = ParseSize(flags.shard_max, "shard size");
    if (options.shard_max == 0) {
      throw Error(ErrorCode::kUsage, "a file has at least one byte",
                  {"", flags.verb == std::string_view("shard") ? "--max" : "--shard-max"});
    }
  }
  return options;
}

double BitsPerWeight(uint64_t bytes, uint64_t elements) {
  return elements == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
}

// A tensor is never divided, so a file may be larger than asked; that is told.
void TellOversized(const convert::ConvertResult& result, uint64_t shard_max) {
  size_t over = 0;
  uint64_t largest = 0;
  for (const std::string& file : result.files) {
    const uint64_t size = FileSize(file);
    if (size > shard_max) ++over;
    largest = std::max(largest, size);
  }
  if (over == 0) return;
  LogWarning(
      fmt::format("{} of {} files are larger than {}, up to {}: a tensor, and the header "
                  "with the tokenizer, can't be divided",
                  over, result.files.size(), FormatSize(shard_max), FormatSize(largest)));
}

void Report(const Globals& globals, const convert::ConvertResult& result) {
  uint64_t file_bytes = 0;
  for (const std::string& file : result.files) file_bytes += FileSize(file);
  const double bits = BitsPerWeight(result.bytes, result.elements);
  if (!globals.quiet) {
    const std::string shards =
        result.files.size() == 1 ? "" : fmt::format(" and {} more files", result.files.size() - 1);
    LogInfo(fmt::format("wrote {}{}: {} tensors, {}, {:.2f} bits a weight", result.files.front(),
                        shards, result.tensors, FormatSize(file_bytes), bits));
  }
  if (globals.json) {
    PrintJson({{"file", result.files.front()},
               {"files", result.files},
               {"tensors", result.tensors},
               {"weights", result.elements},
               {"bytes", file_bytes},
               {"bits_per_weight", bits},
               {"fallbacks", result.fallbacks},
               {"warnings", result.warnings}});
  }
}

// What each tensor would become; writes nothing.
int DryRun(const formats::Checkpoint& source, const convert::ConvertOptions& options, int threads,
           const Globals& globals) {
  ThreadPool pool(threads);
  const convert::PreparedConversion prepared = convert::PrepareConversion(source, options, pool);
  const convert::ConvertPlan& plan = prepared.plan;
  for (const std::string& warning : plan.warnings) LogWarning(warning);
  uint64_t bytes = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const convert::PlannedTensor& tensor : plan.tensors) {
    bytes += tensor.nbytes.value_or(0);
    if (globals.json) {
      list.push_back({{"name", tensor.name},
                      {"shape", tensor.shape},
                      {"from", DTypeName(tensor.source.dtype)},
                      {"to", DTypeName(tensor.dtype)},
                      {"nbytes", nullptr}});
      if (tensor.nbytes) list.back()["nbytes"] = *tensor.nbytes;
    } else {
      fmt::print("{:7} -> {:7} [{}]  {}\n", DTypeName(tensor.source.dtype), DTypeName(tensor.dtype),
                 fmt::join(tensor.shape, ", "), tensor.name);
    }
  }
  std::fflush(stdout);
  const double bits = BitsPerWeight(bytes, plan.elements);
  if (!globals.quiet) {
    for (const std::string& note : plan.notes) LogInfo(note);
    LogInfo(fmt::format("{} tensors, {} of weights, {:.2f} bits a weight; nothing was written",
                        plan.tensors.size(), FormatSize(bytes), bits));
  }
  if (globals.json) {
    PrintJson({{"tensors", std::move(list)},
               {"bytes", bytes},
               {"bits_per_weight", bits},
               {"notes", plan.notes},
               {"warnings", plan.warnings}});
  }
  return 0;
}

int Convert(const Flags& flags, const Globals& globals) {
  CheckTarget(flags);
  convert::ConvertOptions options = OptionsFrom(flags);
  const std::string verb = flags.verb;
  if (verb == "requant" && !options.quant && options.tensor_rules.empty()) {
    throw Error(ErrorCode::kUsage, "requant takes --quant or --tensor: what shall change");
  }
  const auto source = formats::OpenCheckpoint(flags.src);
  if (verb != "convert" && source->kind() != formats::CheckpointKind::kCmf) {
    throw Error(ErrorCode::kUsage, verb + " rewrites .cmf files; use convert", {flags.src, ""});
  }
  if (flags.dry_run) return DryRun(*source, options, flags.threads, globals);

  options.warning = [](const std::string& line) { LogWarning(line); };
  options.note = [&](const std::string& line) {
    if (!globals.quiet) LogInfo(line);
  };
  // Stops between two tensors, so that --resume finds whole ones.
  const std::atomic<bool>& interrupted = CatchInterrupts();
  std::optional<Progress> bar;
  options.progress = [&](const convert::ConvertProgress& state) {
    if (interrupted) {
      throw Error(ErrorCode::kInterrupted, "stopped; --resume continues", {flags.dst, "", {}});
    }
    if (!bar) bar.emplace(verb, state.bytes_total, globals.quiet ? nullptr : stderr);
    bar->Update(state.bytes, state.name);
  };
  ThreadPool pool(flags.threads);
  const convert::ConvertResult result = convert::ConvertToCmf(*source, flags.dst, options, pool);
  bar.reset();
  if (options.shard_max) TellOversized(result, *options.shard_max);
  Report(globals, result);
  return 0;
}

// The flags that all three have.
std::shared_ptr<Flags> CommonFlags(CLI::App& verb, const char* name, const char* source) {
  auto flags = std::make_shared<Flags>();
  flags->verb = name;
  verb.add_option("SRC", flags->src, source)->required();
  verb.add_option("DST", flags->dst, "the .cmf to make")->required();
  verb.add_option("--to", flags->to, "cmf: what to make, whatever DST is called");
  verb.add_flag("--resume", flags->resume, "continue an interrupted run");
  AddThreads(&verb, &flags->threads);
  return flags;
}

void AddQuantFlags(CLI::App& verb, Flags* flags) {
  verb.add_option("--quant", flags->quant, std::string("one of ") + convert::kQuantNames);
  verb.add_option("--tensor", flags->tensors,
                  "GLOB=DTYPE: another dtype for some tensors; repeatable, the first match decides")
      ->allow_extra_args(false);
  AddNumber(&verb, "--mean-bits", &flags->mean_bits, 3.0, 8.0,
            "vbit: average row width (default 4.25)");
  verb.add_option("--route-stats", flags->route_stats,
                  "vbit: more bits to the experts that this file of routing counts shows as busy");
  AddNumber(&verb, "--keep", &flags->keep, 0.0, 0.25,
            "q1s: fraction of the weights kept as f16 (default 0.01)");
  verb.add_flag("--diffuse", flags->diffuse, "q1: carry each weight's error on along its row");
  verb.add_flag("--no-scale-search", flags->no_scale_search,
                "q4tp: the nominal scale of every tile; faster, less exact");
  verb.add_flag("--dry-run", flags->dry_run, "list what each tensor becomes and write nothing");
}

constexpr char kShardHelp[] = "divide into files of at most this size (4GB, 500MiB)";

}  // namespace

Action AddConvert(CLI::App& verb, const Globals& globals) {
  const auto flags = CommonFlags(verb, "convert", "Hugging Face folder or .cmf");
  AddQuantFlags(verb, flags.get());
  verb.add_option("--shard-max", flags->shard_max, kShardHelp);
  CLI::Option* folder = verb.add_option(
      "--defrag", flags->defrag_folder,
      "DIR: leave out FFN neurons that are dead in its tensors/*.npy or ffn_keep.npy");
  verb.add_option("--defrag-task", flags->defrag_task,
                  "leave out the neurons and experts that this task mask of SRC turns off")
      ->excludes(folder);
  return [flags, &globals] { return Convert(*flags, globals); };
}

Action AddRequant(CLI::App& verb, const Globals& globals) {
  const auto flags = CommonFlags(verb, "requant", "a .cmf");
  AddQuantFlags(verb, flags.get());
  verb.add_option("--shard-max", flags->shard_max, kShardHelp);
  return [flags, &globals] { return Convert(*flags, globals); };
}

Action AddCompact(CLI::App& verb, const Globals& globals) {
  const auto flags = CommonFlags(verb, "compact", "a .cmf");
  return [flags, &globals] { return Convert(*flags, globals); };
}

Action AddShard(CLI::App& verb, const Globals& globals) {
  const auto flags = CommonFlags(verb, "shard", "a .cmf");
  verb.add_option("--max", flags->shard_max, kShardHelp)->required();
  return [flags, &globals] { return Convert(*flags, globals); };
}

}  // namespace moewe::cli
