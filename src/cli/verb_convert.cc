// `convert`, `requant`, `compact` and `shard`: one checkpoint written as another model file.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/progress.h"
#include "base/shown.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/number_flags.h"
#include "cli/verbs.h"
#include "convert/convert.h"
#include "convert/dtype_choice.h"
#include "convert/to_smoe.h"
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
  uint32_t bits = 0;  // 0 = not given
  bool plain_scout = false;
  std::string scout;
  bool resume = false;
  bool dry_run = false;
  int threads = 0;
};

// DST's extension says what it becomes, unless --to does: "cmf" or, for convert, "smoe".
std::string Target(const Flags& flags) {
  std::string target = flags.to;
  if (target.empty()) {
    const std::string extension = std::filesystem::path(flags.dst).extension().string();
    if (!extension.empty()) target = extension.substr(1);
  }
  const bool any = std::string_view(flags.verb) == "convert";
  if (target == "cmf" || (any && target == "smoe")) return target;
  throw Error(
      ErrorCode::kUsage,
      (target.empty() ? "DST has no extension that says what to make"
                      : "'" + target + "' cannot be made") +
          (any ? "; name it .cmf or .smoe, or give --to" : "; name it .cmf or give --to cmf"),
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
                 fmt::join(tensor.shape, ", "), Shown(tensor.name));
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

// A progress bar that stops the work between two tensors when the user interrupts.
class Watcher {
 public:
  Watcher(const Flags& flags, const Globals& globals)
      : flags_(flags), quiet_(globals.quiet), interrupted_(CatchInterrupts()) {}

  void operator()(const convert::ConvertProgress& state) {
    if (interrupted_) {
      throw Error(ErrorCode::kInterrupted, "stopped; --resume continues", {flags_.dst, "", {}});
    }
    if (!bar_) bar_.emplace(flags_.verb, state.bytes_total, quiet_ ? nullptr : stderr);
    bar_->Update(state.bytes, state.name);
  }
  void Finish() { bar_.reset(); }

  // Convert- or SmoeOptions tell their user through this, which must outlive the conversion.
  template <typename Options>
  void Attach(Options* options) {
    options->progress = std::ref(*this);
    options->warning = [](const std::string& line) { LogWarning(line); };
    options->note = [quiet = quiet_](const std::string& line) {
      if (!quiet) LogInfo(line);
    };
  }

 private:
  const Flags& flags_;
  bool quiet_;
  const std::atomic<bool>& interrupted_;
  std::optional<Progress> bar_;
};

void CheckSmoeFlags(const Flags& flags) {
  const std::pair<bool, const char*> cmf_flags[] = {{!flags.quant.empty(), "--quant"},
                                                    {!flags.tensors.empty(), "--tensor"},
                                                    {!flags.shard_max.empty(), "--shard-max"},
                                                    {!flags.route_stats.empty(), "--route-stats"},
                                                    {!flags.defrag_folder.empty(), "--defrag"},
                                                    {!flags.defrag_task.empty(), "--defrag-task"},
                                                    {flags.dry_run, "--dry-run"}};
  for (const auto& [given, name] : cmf_flags) {
    if (!given) continue;
    throw Error(ErrorCode::kUsage, fmt::format("{} is for .cmf; a vault has --bits", name));
  }
}

int ConvertToVault(const Flags& flags, const Globals& globals) {
  CheckSmoeFlags(flags);
  const auto source = formats::OpenCheckpoint(flags.src, flags.scout);
  convert::SmoeOptions options;
  options.bits = flags.bits == 0 ? 4 : flags.bits;
  options.plain_scout = flags.plain_scout;
  options.resume = flags.resume;
  Watcher watcher(flags, globals);
  watcher.Attach(&options);
  ThreadPool pool(flags.threads);
  const convert::SmoeResult result = convert::ConvertToSmoe(*source, flags.dst, options, pool);
  watcher.Finish();
  const uint64_t bytes = FileSize(result.files.front());
  const double bits = BitsPerWeight(result.bytes, result.elements);
  if (!globals.quiet) {
    LogInfo(fmt::format("wrote {} and {}: {} experts, {}, {:.2f} bits a weight of an expert",
                        result.files[0], result.files[1], result.experts, FormatSize(bytes), bits));
  }
  if (globals.json) {
    PrintJson({{"file", result.files.front()},
               {"files", result.files},
               {"experts", result.experts},
               {"weights", result.elements},
               {"bytes", bytes},
               {"bits_per_weight", bits},
               {"warnings", result.warnings}});
  }
  return 0;
}

int Convert(const Flags& flags, const Globals& globals) {
  if (Target(flags) == "smoe") return ConvertToVault(flags, globals);
  if (flags.bits != 0 || flags.plain_scout) {
    throw Error(ErrorCode::kUsage, "--bits and --plain-scout are for .smoe; a .cmf has --quant");
  }
  convert::ConvertOptions options = OptionsFrom(flags);
  const std::string verb = flags.verb;
  if (verb == "requant" && !options.quant && options.tensor_rules.empty()) {
    throw Error(ErrorCode::kUsage, "requant takes --quant or --tensor: what shall change");
  }
  const auto source = formats::OpenCheckpoint(flags.src, flags.scout);
  if (verb != "convert" && source->kind() != formats::CheckpointKind::kCmf) {
    throw Error(ErrorCode::kUsage, verb + " rewrites .cmf files; use convert", {flags.src, ""});
  }
  if (flags.dry_run) return DryRun(*source, options, flags.threads, globals);

  Watcher watcher(flags, globals);
  watcher.Attach(&options);
  ThreadPool pool(flags.threads);
  const convert::ConvertResult result = convert::ConvertToCmf(*source, flags.dst, options, pool);
  watcher.Finish();
  if (options.shard_max) TellOversized(result, *options.shard_max);
  Report(globals, result);
  return 0;
}

// The flags that all three have.
std::shared_ptr<Flags> CommonFlags(CLI::App& verb, const char* name, const char* source) {
  auto flags = std::make_shared<Flags>();
  flags->verb = name;
  verb.add_option("SRC", flags->src, source)->required();
  verb.add_option("DST", flags->dst, "the file to make")->required();
  verb.add_option("--to", flags->to, "cmf or smoe: what to make, whatever DST is called");
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
  const auto flags = CommonFlags(verb, "convert", "Hugging Face folder, .cmf or .smoe");
  AddQuantFlags(verb, flags.get());
  verb.add_option("--bits", flags->bits, ".smoe: 4 (default) or 2")->check(CLI::IsMember({2, 4}));
  verb.add_flag("--plain-scout", flags->plain_scout, ".smoe: the Scout without moewe's metadata");
  verb.add_option("--scout", flags->scout, kScoutHelp);
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
