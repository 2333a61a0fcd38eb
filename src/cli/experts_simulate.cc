#include "cli/experts_simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/size.h"
#include "cli/number_flags.h"
#include "experts/simulate.h"
#include "experts/trace_file.h"
#include "moewe/error.h"
#include "platform/thread_pool.h"

namespace moewe::cli {
namespace {

using experts::Policy;
using experts::RoutingTrace;

constexpr std::array<Policy, 4> kPolicies = {Policy::kLru, Policy::kLruFloor, Policy::kLfu,
                                             Policy::kBelady};

// One line of the table.
struct Row {
  uint32_t slots = 0;
  uint32_t floor = 0;
  std::array<experts::CacheResult, kPolicies.size()> results;
};

std::vector<uint32_t> Slots(const SimulateFlags& flags, const RoutingTrace& trace) {
  const auto all = static_cast<uint32_t>(trace.experts());
  std::vector<uint32_t> slots = flags.slots;
  for (const std::string& memory : flags.memories) {
    if (!trace.expert_bytes || *trace.expert_bytes == 0) {
      throw Error(ErrorCode::kUsage, "the trace does not say how large an expert is: give --slots",
                  {flags.trace, "--memory"});
    }
    const uint64_t fit = ParseSize(memory, "memory") / *trace.expert_bytes;
    slots.push_back(static_cast<uint32_t>(std::min<uint64_t>(fit, all)));
  }
  if (slots.empty()) {
    for (const uint32_t sixteenths : {1u, 2u, 4u, 6u, 8u, 12u, 16u}) {
      slots.push_back(std::max(all * sixteenths / 16, trace.most_at_once()));
    }
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  for (const uint32_t n : slots) {
    if (n >= trace.most_at_once()) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} slots: a step needs {} experts at once", n, trace.most_at_once()));
  }
  return slots;
}

std::vector<Row> Replay(const SimulateFlags& flags, const RoutingTrace& trace,
                        const std::vector<uint32_t>& slots, uint64_t* accesses) {
  const experts::ExpertIds ids(trace.ExpertsPerLayer());
  const std::vector<experts::ExpertId> order = experts::AccessesInOrder(trace, ids);
  *accesses = order.size();
  const uint32_t wanted =
      flags.floor < 0 ? trace.most_at_once() : static_cast<uint32_t>(flags.floor);
  std::vector<Row> rows(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    rows[i].slots = slots[i];
    rows[i].floor = experts::LargestFloor(trace, slots[i], wanted);
  }
  ThreadPool pool(flags.threads);
  pool.Run(rows.size() * kPolicies.size(), [&](size_t i, int) {
    Row& row = rows[i / kPolicies.size()];
    const size_t p = i % kPolicies.size();
    row.results[p] = experts::Simulate(trace, ids, order, kPolicies[p], row.slots, row.floor);
  });
  return rows;
}

void PrintTable(const RoutingTrace& trace, const std::vector<Row>& rows, uint64_t accesses) {
  fmt::print("{} tokens, {} experts in {} layers, {} accesses; hit rates:\n", trace.tokens,
             trace.experts(), trace.num_layers, accesses);
  fmt::print("{:>7} {:>7}", "slots", "of all");
  if (trace.expert_bytes) fmt::print(" {:>10}", "memory");
  for (const Policy policy : kPolicies) fmt::print(" {:>10}", experts::PolicyName(policy));
  fmt::print(" {:>6}\n", "floor");
  for (const Row& row : rows) {
    const double share = 100.0 * row.slots / static_cast<double>(trace.experts());
    fmt::print("{:>7} {:>6.1f}%", row.slots, share);
    if (trace.expert_bytes) fmt::print(" {:>10}", FormatSize(row.slots * *trace.expert_bytes));
    for (const auto& result : row.results) fmt::print(" {:>9.2f}%", 100.0 * result.hit_rate());
    fmt::print(" {:>6}\n", row.floor);
  }
  std::fflush(stdout);
}

Json AsJson(const RoutingTrace& trace, const std::vector<Row>& rows, uint64_t accesses) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json rates = Json::object();
    Json hits = Json::object();
    for (size_t p = 0; p < kPolicies.size(); ++p) {
      const std::string name(experts::PolicyName(kPolicies[p]));
      rates[name] = row.results[p].hit_rate();
      hits[name] = row.results[p].hits;
    }
    Json entry = {{"slots", row.slots}, {"floor", row.floor}};
    if (trace.expert_bytes) entry["bytes"] = row.slots * *trace.expert_bytes;
    entry["hit_rate"] = std::move(rates);
    entry["hits"] = std::move(hits);
    list.push_back(std::move(entry));
  }
  Json json = {{"tokens", trace.tokens},     {"layers", trace.num_layers},
               {"experts", trace.experts()}, {"accesses", accesses},
               {"expert_bytes", nullptr},    {"results", std::move(list)}};
  if (trace.expert_bytes) json["expert_bytes"] = *trace.expert_bytes;
  return json;
}

}  // namespace

void AddSimulateFlags(CLI::App* verb, SimulateFlags* flags) {
  verb->add_option("TRACE", flags->trace, "of experts stats --trace or logits --router")
      ->required();
  CLI::Option* slots =
      verb->add_option("--slots", flags->slots, "cache sizes in experts: 8,16,32 (default: shares)")
          ->delimiter(',')
          ->allow_extra_args(false);
  verb->add_option("--memory", flags->memories, "cache sizes in bytes instead: 1GiB,2GiB")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(slots);
  AddNumber(verb, "--floor", &flags->floor, 0, 1 << 20,
            "lru+floor: experts that each layer keeps (default: top_k; as far as there is room)");
  AddThreads(verb, &flags->threads);
}

int SimulateExperts(const SimulateFlags& flags, const Globals& globals) {
  const RoutingTrace trace = experts::ReadRoutingTrace(flags.trace);
  uint64_t accesses = 0;
  const std::vector<Row> rows = Replay(flags, trace, Slots(flags, trace), &accesses);
  if (globals.json) {
    PrintJson(AsJson(trace, rows, accesses));
  } else {
    PrintTable(trace, rows, accesses);
  }
  return 0;
}

}  // namespace moewe::cli
