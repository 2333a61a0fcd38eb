// moewe plan: where the memory goes and how fast decoding can be, before anything runs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/size.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "model/decode_limit.h"
#include "model/expert_usage.h"
#include "model/memory_plan.h"
#include "moewe/error.h"
#include "platform/disk_reader.h"
#include "platform/memory_limits.h"
#include "platform/memory_scan.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  std::string model;
};

// Bytes a second that this machine's memory gives now, over as much of it as the weights take: what
// fits the CPU's caches is read from there when the model runs, too.
double MeasureBandwidth(uint64_t weights, ThreadPool& threads) {
  constexpr uint64_t kLeast = uint64_t{8} << 20;
  constexpr uint64_t kMost = uint64_t{256} << 20;
  const uint64_t room = std::max(kLeast, ReadMemoryLimits().available() / 4);
  const std::vector<uint8_t> memory(std::clamp(weights, kLeast, std::min(kMost, room)), 1);
  std::vector<Bytes> pieces;
  AddScanPieces(memory, &pieces);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double best = 0.0;
  uint64_t sum = 0;
  for (int pass = 0; pass < 3 || Clock::now() - start < std::chrono::milliseconds(100); ++pass) {
    const auto begin = Clock::now();
    sum += ScanMemory(pieces, threads);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, static_cast<double>(memory.size()) / std::max(seconds, 1e-9));
  }
  if (sum == 0) throw Error(ErrorCode::kInternal, "the memory scan read nothing");
  return best;
}

void PrintTable(const model::MemoryPlan& plan, uint64_t per_position, const std::string& kv_type) {
  const auto line = [](const char* what, uint64_t bytes, const std::string& note) {
    std::printf("%-12s %10s  %s\n", what, FormatSize(bytes).c_str(), note.c_str());
  };
  line("trunk", plan.trunk, "weights that every token reads, and the embedding");
  if (plan.streamed) {
    line("experts", plan.arena + plan.held,
         "room for " + std::to_string(plan.slots) + " of " + FormatSize(plan.experts) +
             ", which are streamed from disk");
  } else {
    line("experts", plan.experts, "routed experts, all resident");
  }
  if (plan.blended != 0) {
    line("  blended", plan.blended, "of these, skills' tensors mixed in f32");
  }
  if (plan.skills != 0)
    line("skills", plan.skills, "routing a prompt to skills, and their weights");
  line("KV cache", plan.kv,
       std::to_string(plan.context) + " positions of " + FormatSize(per_position) + " (" + kv_type +
           ")" + (plan.shrunk ? ", as many as fit" : ""));
  if (plan.states != 0) {
    line("states", plan.states, "of recurrent layers: where sequences are, and to go back to");
  }
  line("activations", plan.activations, "working space of a step");
  line("tokenizer", plan.tokenizer, "");
  line("program", plan.program, "code, libraries, configuration");
  line("total", plan.total(), plan.fits() ? "fits" : "does not fit");
  line("budget", plan.budget, "");
}

// The share of uses that the planned slots serve, by how often experts were used before; if that is
// not known, as if all were alike.
struct ResidentRate {
  double share = 0.0;
  bool from_usage = false;
};

ResidentRate ExpectResident(const api::PlannedModel& open) {
  const model::StoredExperts& stored = open.model->stored();
  std::vector<uint64_t> counts(stored.count, 0);
  bool known = false;
  if (open.load.stream && !open.load.stream->frequencies.empty()) {
    try {
      counts = model::UsageFile(open.load.stream->frequencies, *open.checkpoint,
                                open.model->weights(), stored)
                   .Read();
      known = true;
    } catch (const Error&) {  // there are none, or not of this model
    }
  }
  return {model::ExpectedHitRate(counts, open.plan.slots), known};
}

// What the disk gives now, and what follows from it for a plan that is streamed.
struct DiskPart {
  DiskSpeed speed;
  uint64_t read_bytes = 0;
};

DiskPart MeasureDisk(const api::PlannedModel& open) {
  constexpr double kSeconds = 0.3;
  DiskPart disk;
  disk.read_bytes = model::CommonReadBytes(open.model->stored());
  disk.speed = ProbeDisk(open.checkpoint->files().front(), disk.read_bytes, kSeconds);
  return disk;
}

void PrintPrediction(const model::DecodeLimit& first, const model::DecodeLimit& last,
                     const std::optional<DiskPart>& disk, bool from_usage) {
  const auto speed = [](double bytes_per_s) {
    return FormatSize(static_cast<uint64_t>(bytes_per_s)) + "/s";
  };
  if (disk) {
    std::printf(
        "the disk gives %s now (%s, %s, reads of %s); %.0f %% of the experts a token needs are in "
        "memory (%s): %s a token are read\n",
        speed(disk->speed.bytes_per_s).c_str(), disk->speed.method.c_str(),
        disk->speed.direct ? "direct" : "through the page cache",
        FormatSize(disk->read_bytes).c_str(), 100.0 * first.resident_rate,
        from_usage ? "as they were used before" : "if all are used alike",
        FormatSize(static_cast<uint64_t>((1.0 - first.resident_rate) * first.expert_bytes))
            .c_str());
  }
  std::printf("memory gives %s now: at most %.3g tok/s at the start, %.3g at the end%s\n",
              speed(first.memory_bytes_per_s).c_str(), first.tokens_per_s(), last.tokens_per_s(),
              !disk                 ? ""
              : first.disk_limits() ? "; the disk is the limit"
                                    : "; memory is the limit");
}

int Run(const Flags& flags, const Globals& globals) {
  const api::PlannedModel open = api::OpenToPlan(flags.model, ModelOptionsOf(flags.run));
  const model::MemoryPlan& plan = open.plan;
  const uint64_t per_position =
      model::KvBytesPerPosition(open.model->config(), open.request.kv_type);
  if (!globals.json) {
    PrintTable(plan, per_position, model::KvTypeName(open.request.kv_type));
  }
  model::RequireFit(plan, flags.model);

  const double bandwidth = MeasureBandwidth(open.model->weight_bytes_total(), *open.threads);
  const uint64_t weights = open.model->weight_bytes_per_token();
  const uint64_t kv = per_position * plan.context;
  model::DecodeLimit first;
  first.bytes = static_cast<double>(weights);
  first.memory_bytes_per_s = bandwidth;
  std::optional<DiskPart> disk;
  ResidentRate resident;
  if (plan.streamed) {
    disk = MeasureDisk(open);
    first.expert_bytes = model::ExpertBytesPerToken(open.model->stored(), open.model->config());
    resident = ExpectResident(open);
    first.resident_rate = resident.share;
    first.disk_bytes_per_s = disk->speed.bytes_per_s;
  }
  model::DecodeLimit last = first;
  last.bytes += static_cast<double>(kv);
  if (globals.json) {
    nlohmann::ordered_json report = {
        {"fits", true},
        {"budget", plan.budget},
        {"total", plan.total()},
        {"parts",
         {{"trunk", plan.trunk},
          {"experts", plan.streamed ? plan.arena + plan.held : plan.experts},
          {"skills", plan.skills},
          {"kv", plan.kv},
          {"states", plan.states},
          {"activations", plan.activations},
          {"tokenizer", plan.tokenizer},
          {"program", plan.program}}},
        {"blended", plan.blended},
        {"streamed", plan.streamed},
        {"expert_bytes", plan.experts},
        {"context", plan.context},
        {"context_shrunk", plan.shrunk},
        {"kv_bytes_per_position", per_position},
        {"bytes_per_token", {{"weights", weights}, {"kv_at_context", kv}}},
        {"scan", {{"bytes_per_s", bandwidth}}},
        {"predicted",
         {{"tokens_per_s", first.tokens_per_s()},
          {"tokens_per_s_at_context", last.tokens_per_s()}}}};
    if (disk) {
      report["disk"] = {{"bytes_per_s", disk->speed.bytes_per_s},
                        {"read_bytes", disk->read_bytes},
                        {"method", disk->speed.method},
                        {"depth", disk->speed.depth},
                        {"direct", disk->speed.direct}};
      report["slots"] = plan.slots;
      report["experts"] = open.model->stored().count;
      report["predicted"]["resident_rate"] = first.resident_rate;
      report["predicted"]["resident_rate_from"] = resident.from_usage ? "usage" : "uniform";
      report["predicted"]["expert_bytes_per_token"] = first.expert_bytes;
      report["predicted"]["limit"] = first.disk_limits() ? "disk" : "memory";
    }
    PrintJson(report);
    return 0;
  }
  std::printf("a token reads %s of weights, and %s of keys and values at the end of the context\n",
              FormatSize(weights).c_str(), FormatSize(kv).c_str());
  PrintPrediction(first, last, disk, resident.from_usage);
  return 0;
}

}  // namespace

Action AddPlan(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("MODEL", flags->model, "model file or folder")->required();
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
