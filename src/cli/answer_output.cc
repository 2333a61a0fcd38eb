#include "cli/answer_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/skill_report.h"

namespace moewe::cli {
namespace {

// What was computed in each phase; the first token of an answer comes out of the prefill.
struct Speed {
  explicit Speed(const Answer& answer)
      : prefilled(answer.prompt_tokens - answer.reused_tokens),
        decoded(answer.ids.empty() ? 0 : answer.ids.size() - 1),
        prefill_rate(Rate(prefilled, answer.prefill_seconds)),
        decode_rate(Rate(decoded, answer.decode_seconds)) {}

  static double Rate(size_t tokens, double seconds) {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  }

  size_t prefilled, decoded;
  double prefill_rate, decode_rate;  // tokens a second
};

}  // namespace

void PrintText(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string JoinIds(std::span<const Token> ids) {
  std::string line;
  for (const Token id : ids) line += (line.empty() ? "" : ",") + std::to_string(id);
  return line;
}

nlohmann::ordered_json AnswerJson(const Answer& answer) {
  const Speed speed(answer);
  const size_t completion = answer.ids.size();
  nlohmann::ordered_json json = {{"text", answer.text},
                                 {"ids", answer.ids},
                                 {"finish_reason", FinishReasonName(answer.finish_reason)},
                                 {"usage",
                                  {{"prompt_tokens", answer.prompt_tokens},
                                   {"completion_tokens", completion},
                                   {"total_tokens", answer.prompt_tokens + completion}}},
                                 {"seed", answer.seed},
                                 {"timings",
                                  {{"prefill_seconds", answer.prefill_seconds},
                                   {"prefill_tokens_per_s", speed.prefill_rate},
                                   {"decode_seconds", answer.decode_seconds},
                                   {"decode_tokens_per_s", speed.decode_rate}}},
                                 {"cache", {{"reused_tokens", answer.reused_tokens}}}};
  const Speculation& speculation = answer.speculation;
  json["speculation"] = {{"drafted", speculation.drafted},
                         {"accepted", speculation.accepted},
                         {"steps", speculation.steps},
                         {"drafted_steps", speculation.drafted_steps},
                         {"speed_up", nullptr}};
  if (speculation.speed_up) json["speculation"]["speed_up"] = *speculation.speed_up;
  if (!answer.skill.empty()) {
    json["skill"] = {{"chosen", answer.skill}, {"energies", EnergiesJson(answer.skill_energies)}};
  }
  return json;
}

std::string SkillChosen(const Answer& answer) {
  std::string line = fmt::format("skill {}", answer.skill.empty() ? "none" : answer.skill);
  const char* before = " (E ";
  for (const SkillEnergy& skill : answer.skill_energies) {
    line += fmt::format("{}{} {:.4f}", before, skill.id, skill.energy);
    before = ", ";
  }
  return line + ")";
}

void PrintStats(const Answer& answer) {
  const Speed speed(answer);
  std::fprintf(stderr, "prefill %zu tokens, %.1f tok/s; decode %zu tokens, %.1f tok/s",
               speed.prefilled, speed.prefill_rate, speed.decoded, speed.decode_rate);
  if (answer.reused_tokens > 0) {
    std::fprintf(stderr, "; %zu prompt tokens reused", answer.reused_tokens);
  }
  std::fputc('\n', stderr);
  const Speculation& speculation = answer.speculation;
  if (speculation.drafted == 0) return;
  const std::string faster =
      speculation.speed_up ? fmt::format("; {:.2f} times as fast", *speculation.speed_up) : "";
  std::fprintf(stderr, "speculation: %llu of %llu drafted tokens right, in %llu of %llu steps%s\n",
               static_cast<unsigned long long>(speculation.accepted),
               static_cast<unsigned long long>(speculation.drafted),
               static_cast<unsigned long long>(speculation.drafted_steps),
               static_cast<unsigned long long>(speculation.steps), faster.c_str());
}

}  // namespace moewe::cli
