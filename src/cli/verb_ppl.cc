// moewe ppl: how well the model predicts a text.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes_of.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/model_tokenizer.h"
#include "cli/number_flags.h"
#include "cli/run_flags.h"
#include "cli/stream_report.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "engine/score.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "moewe/error.h"

namespace moewe::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  RunFlags run;
  std::string model, file, ids;
  engine::ScoreOptions score;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// [1, 2, 3], or an object with such a list under "ids".
std::vector<model::TokenId> ReadIds(const std::string& path) {
  const std::string text = ReadTextFile(path);
  Json json = ParseJson(BytesOf(text), path, "");
  if (json.is_object() && json.contains("ids")) json = Json(json["ids"]);
  const auto malformed = [&](const std::string& field) {
    return Error(ErrorCode::kParse, "not a list of token ids", {path, field});
  };
  if (!json.is_array()) throw malformed("ids");
  std::vector<model::TokenId> ids;
  ids.reserve(json.size());
  for (const auto& id : json) {
    if (!id.is_number_integer()) throw malformed("ids[" + std::to_string(ids.size()) + "]");
    // Beyond any vocabulary, and told so with the others.
    ids.push_back(id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX
                      ? id.get<model::TokenId>()
                      : model::TokenId{-1});
  }
  return ids;
}

std::vector<model::TokenId> Tokens(const Flags& flags) {
  if (flags.file.empty() == flags.ids.empty()) {
    throw Error(ErrorCode::kUsage, "give either a text file or --ids");
  }
  if (!flags.ids.empty()) return ReadIds(flags.ids);
  return LoadTokenizer(flags.model)->Encode(ReadUtf8File(flags.file));
}

// The window that was asked for, or as much of it as the model has positions.
uint32_t WindowOf(const Flags& flags, const Globals& globals) {
  const auto checkpoint = formats::OpenCheckpoint(flags.model, flags.run.scout);
  const uint32_t positions = model::ReadConfig(*checkpoint).max_position_embeddings;
  if (flags.score.window <= positions || positions < 2) return flags.score.window;
  if (!globals.quiet) {
    LogInfo(fmt::format("windows of {} tokens, not {}: the model has no more positions", positions,
                        flags.score.window));
  }
  return positions;
}

int Run(const Flags& flags, const Globals& globals) {
  RefuseAutoSkill(flags.run, "ppl");
  const std::vector<model::TokenId> ids = Tokens(flags);
  RunFlags run = flags.run;
  engine::ScoreOptions options = flags.score;
  options.window = WindowOf(flags, globals);
  // The context that a window needs, unless asked otherwise.
  const auto longest =
      static_cast<uint32_t>(std::clamp<size_t>(ids.size(), 1, std::max(1u, options.window)));
  if (run.ctx == 0) run.ctx = longest;
  if (run.ctx < longest) {
    throw Error(ErrorCode::kUsage, "a window of " + std::to_string(longest) +
                                       " tokens does not fit --ctx " + std::to_string(run.ctx));
  }
  const OpenModel open = OpenForRun(flags.model, run, LogitsOfStep::kEvery);
  options.chunk = open.chunk;
  options.cancel = &CatchInterrupts();
  model::KvPool pool(open.model->config(), open.kv_type, open.BlocksFor(1));

  const auto start = Clock::now();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  double shown = 0.0;
  const auto progress = [&](const engine::Score& score, size_t windows) {
    const double seconds = SecondsSince(start);
    const bool last = score.windows == windows;
    if (globals.quiet || (!last && seconds < shown + (terminal ? 0.2 : 5.0))) return;
    shown = seconds;
    std::fprintf(stderr, "%smoewe: window %zu of %zu, perplexity %.4f, %.0f tok/s%s",
                 terminal ? "\r\033[K" : "", score.windows, windows, std::exp(score.MeanNll()),
                 static_cast<double>(score.tokens) / std::max(seconds, 1e-9),
                 terminal && !last ? "" : "\n");
  };
  const engine::Score score =
      engine::ScoreTokens(open.model.get(), &pool, open.threads.get(), ids, options, progress);
  const double nll = score.MeanNll();
  const double seconds = SecondsSince(start);
  nlohmann::ordered_json report = {{"nll", nll},
                                   {"ppl", std::exp(nll)},
                                   {"tokens", ids.size()},
                                   {"predicted", score.nll.size()},
                                   {"windows", score.windows},
                                   {"seconds", seconds}};
  ReportStream(open, flags.run, seconds, &report);
  if (globals.json) {
    PrintJson(report);
  } else {
    std::printf("perplexity %.4f, nll %.6f nats a token (%zu tokens, %zu predicted, %zu windows)\n",
                std::exp(nll), nll, ids.size(), score.nll.size(), score.windows);
  }
  return 0;
}

}  // namespace

Action AddPpl(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("MODEL", flags->model, "model file or folder")->required();
  verb.add_option("FILE", flags->file, "the text; - is stdin");
  verb.add_option("--ids", flags->ids, "a JSON list of token ids instead of a text");
  AddNumber(&verb, "--window", &flags->score.window, 2u, UINT32_MAX, "tokens a window");
  AddNumber(&verb, "--max-windows", &flags->score.max_windows, 0u, UINT32_MAX,
            "only the first so many windows");
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
