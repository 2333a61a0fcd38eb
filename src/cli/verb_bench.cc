// `bench`: how fast a model, or a made-up one of a known shape, runs on this machine.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/progress.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/number_flags.h"
#include "cli/run_flags.h"
#include "cli/stream_report.h"
#include "cli/verbs.h"
#include "convert/convert.h"
#include "convert/dtype_choice.h"
#include "convert/synthetic.h"
#include "engine/speed.h"
#include "kernels/compute.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::cli {
namespace {

struct BenchFlags {
  RunFlags run;
  engine::SpeedOptions speed;
  std::string model;
  convert::SyntheticOptions synthetic;
  std::string quant;
  std::string out;
};

// A folder of its own under TMPDIR that goes with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "moewe-bench-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) ThrowErrno("cannot make a temporary folder", path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What every step of the verb needs.
struct Job {
  const BenchFlags& flags;
  const Globals& globals;
  const std::atomic<bool>& interrupted;
};

void WriteSynthetic(const Job& job, const std::string& dst) {
  ThreadPool pool(job.flags.run.threads);
  const auto checkpoint = convert::MakeSynthetic(job.flags.synthetic, pool);
  convert::ConvertOptions options;
  options.quant = job.flags.synthetic.quant;
  options.keep_partial = false;
  std::optional<Progress> bar;
  options.progress = [&](const convert::ConvertProgress& state) {
    if (job.interrupted) throw Error(ErrorCode::kInterrupted, "stopped", {dst, "", {}});
    if (!bar) {
      bar.emplace(job.flags.synthetic.shape, state.bytes_total,
                  job.globals.quiet ? nullptr : stderr);
    }
    bar->Update(state.bytes, state.name);
  };
  convert::ConvertToCmf(*checkpoint, dst, options, pool);
}

// The model to measure: the one named, or a synthetic one that is written first. A temporary file
// loses its name as soon as it is open, so that nothing of it can stay behind.
OpenModel OpenToMeasure(const Job& job, const RunFlags& run) {
  const auto open = [&run](const std::string& path) {
    return OpenForRun(path, run, LogitsOfStep::kLast, engine::SpeedBytes);
  };
  if (!job.flags.model.empty()) return open(job.flags.model);
  if (!job.flags.out.empty()) {
    WriteSynthetic(job, job.flags.out);
    return open(job.flags.out);
  }
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/" + job.flags.synthetic.shape + ".cmf";
  WriteSynthetic(job, file);
  return open(file);
}

void CheckFlags(const BenchFlags& flags) {
  const convert::SyntheticOptions& synthetic = flags.synthetic;
  if (synthetic.shape.empty() == flags.model.empty()) {
    throw Error(ErrorCode::kUsage, "give either a MODEL or --shape");
  }
  if (synthetic.shape.empty() && (synthetic.layers != 0 || synthetic.vocab != 0 ||
                                  !flags.quant.empty() || !flags.out.empty())) {
    throw Error(ErrorCode::kUsage, "--layers, --vocab, --quant and --out go with --shape");
  }
  if (!flags.out.empty() && !flags.out.ends_with(".cmf")) {
    throw Error(ErrorCode::kUsage, "--out must end in .cmf");
  }
}

void PrintTable(const BenchFlags& flags, const OpenModel& open, const engine::SpeedResult& speed) {
  const model::ModelConfig& config = open.model->config();
  const double decode_gb = speed.decode_bytes_per_s / 1e9;
  const double scan_gb = speed.scan_bytes_per_s / 1e9;
  fmt::print("{}, {} layers, {} weights; {} threads, {}, {} activations, {} KV cache\n",
             flags.model.empty() ? flags.synthetic.shape : flags.model, config.num_layers,
             FormatSize(open.model->weight_bytes_total()), open.threads->num_threads(),
             kernels::KernelIsaName(), flags.run.activations, model::KvTypeName(open.kv_type));
  fmt::print("{:<8} {:>5} tokens  {:>9.2f} tok/s\n", "prefill", flags.speed.prompt,
             speed.prefill_tokens_per_s);
  fmt::print("{:<8} {:>5} tokens  {:>9.2f} tok/s  {} a token  {:>6.2f} GB/s\n", "decode",
             flags.speed.decode, speed.decode_tokens_per_s, FormatSize(speed.bytes_per_token),
             decode_gb);
  fmt::print("{:<8} the same bytes, just read: {:.2f} GB/s; decode reaches {:.0f} % of it\n",
             "scan", scan_gb, 100.0 * decode_gb / scan_gb);
  if (!speed.streamed) return;
  const engine::StreamedSpeed& streamed = *speed.streamed;
  fmt::print(
      "{:<8} reads of {}: {:.2f} GB/s; with {:.1f} % of the experts in memory they and the "
      "scan allow {:.2f} tok/s; decode reaches {:.0f} % of it\n",
      "disk", FormatSize(streamed.read_bytes), streamed.disk_bytes_per_s / 1e9,
      100.0 * streamed.decode.resident_rate(), speed.predicted_tokens_per_s,
      100.0 * speed.achieved);
}

nlohmann::ordered_json PhaseJson(const engine::StreamedPhase& phase) {
  return {{"tokens", phase.tokens},
          {"resident", phase.resident},
          {"prefetched", phase.prefetched},
          {"missed", phase.missed},
          {"hit_rate", HitRateJson(phase.resident, phase.prefetched, phase.missed)},
          {"bytes_read", phase.bytes_read},
          {"wait_seconds", phase.wait_seconds},
          {"hidden_seconds", phase.hidden_seconds()},
          {"seconds", phase.seconds}};
}

// Adds what a streamed model has beside the others.
void AddStreamed(const engine::SpeedResult& speed, nlohmann::ordered_json* report) {
  if (!speed.streamed) return;
  const engine::StreamedSpeed& streamed = *speed.streamed;
  (*report)["disk"] = {{"bytes_per_s", streamed.disk_bytes_per_s},
                       {"read_bytes", streamed.read_bytes}};
  (*report)["predicted"]["resident_rate"] = streamed.decode.resident_rate();
  (*report)["predicted"]["expert_bytes_per_token"] = streamed.expert_bytes_per_token;
  (*report)["streaming"]["prefill"] = PhaseJson(streamed.prefill);
  (*report)["streaming"]["decode"] = PhaseJson(streamed.decode);
}

int Bench(const BenchFlags& given, const Globals& globals) {
  BenchFlags flags = given;
  CheckFlags(flags);
  RefuseAutoSkill(flags.run, "bench");
  if (!flags.quant.empty()) flags.synthetic.quant = convert::ParseQuant(flags.quant);
  const Job job{flags, globals, CatchInterrupts()};
  flags.speed.cancel = &job.interrupted;
  const uint32_t positions = engine::SpeedPositions(flags.speed);
  RunFlags run = flags.run;
  if (run.ctx == 0) run.ctx = positions;
  if (positions > run.ctx) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} positions are needed, --ctx allows {}", positions, run.ctx));
  }
  const OpenModel open = OpenToMeasure(job, run);
  flags.speed.chunk = open.chunk;
  if (!globals.quiet) {
    flags.speed.progress = [](uint32_t done, uint32_t of) {
      LogInfo(done == 1 ? "warmed up" : fmt::format("pass {} of {}", done - 1, of - 1));
    };
  }
  model::KvPool kv(open.model->config(), open.kv_type, open.BlocksFor(1));
  const engine::SpeedResult speed =
      engine::MeasureSpeed(open.model.get(), &kv, open.threads.get(), flags.speed);
  open.checkpoint->CheckReadable();
  if (!globals.json) {
    PrintTable(flags, open, speed);
    ReportStream(open, flags.run, 0.0, nullptr);
    return 0;
  }
  nlohmann::ordered_json report = {
      {"prefill", {{"tokens", flags.speed.prompt}, {"tokens_per_s", speed.prefill_tokens_per_s}}},
      {"decode",
       {{"tokens", flags.speed.decode},
        {"tokens_per_s", speed.decode_tokens_per_s},
        {"bytes_per_token", speed.bytes_per_token},
        {"bytes_per_s", speed.decode_bytes_per_s}}},
      {"scan", {{"bytes_per_s", speed.scan_bytes_per_s}}},
      {"predicted", {{"tokens_per_s", speed.predicted_tokens_per_s}}},
      {"achieved", speed.achieved},
      {"model", flags.model.empty() ? flags.synthetic.shape : flags.model},
      {"weight_bytes", open.model->weight_bytes_total()},
      {"depth", flags.speed.depth},
      {"chunk", flags.speed.chunk},
      {"repeats", flags.speed.repeats},
      {"threads", open.threads->num_threads()},
      {"isa", kernels::KernelIsaName()},
      {"activations", flags.run.activations},
      {"kv", model::KvTypeName(open.kv_type)}};
  ReportStream(open, flags.run, 0.0, &report);
  AddStreamed(speed, &report);
  PrintJson(report);
  return 0;
}

}  // namespace

Action AddBench(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<BenchFlags>();
  constexpr uint32_t kMost = 1 << 20;
  verb.add_option("MODEL", flags->model, "model file or folder");
  AddNumber(&verb, "-p", &flags->speed.prompt, 1u, kMost, "prompt tokens (512)");
  AddNumber(&verb, "-n", &flags->speed.decode, 1u, kMost, "decoded tokens (64)");
  AddNumber(&verb, "-d", &flags->speed.depth, 0u, kMost,
            "positions before the first decoded token (128)");
  AddNumber(&verb, "-r", &flags->speed.repeats, 1u, kMost, "passes; results are medians (3)");
  verb.add_option("--shape", flags->synthetic.shape,
                  "instead of MODEL, noise in a model's shape: " +
                      fmt::format("{}", fmt::join(convert::SyntheticShapes(), ", ")));
  AddNumber(&verb, "--layers", &flags->synthetic.layers, 1, 1024,
            "of the shape (default: the model's)");
  AddNumber(&verb, "--vocab", &flags->synthetic.vocab, 1, 1 << 24,
            "of the shape (default: the model's)");
  verb.add_option("--quant", flags->quant, "of the shape: as for convert (default q8)");
  verb.add_option("--out", flags->out, "keep the shape's .cmf here (default: a temporary file)");
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Bench(*flags, globals); };
}

}  // namespace moewe::cli
