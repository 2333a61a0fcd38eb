// moewe logits: what the model computes for given tokens, as raw f32.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes_of.h"
#include "cli/run_flags.h"
#include "cli/stream_report.h"
#include "cli/verbs.h"
#include "moewe/error.h"
#include "platform/atomic_file.h"

namespace moewe::cli {
namespace {

struct Flags {
  RunFlags run;
  std::string model, ids, out, hidden, router;
  bool all = false;
};

// Keeps the residual stream of the last row seen a layer, and every row's routing.
class Recorder : public model::ForwardObserver {
 public:
  explicit Recorder(uint32_t hidden_size) : hidden_size_(hidden_size) {}

  void OnHidden(int layer, const float* data, size_t rows) override {
    const size_t index = static_cast<size_t>(layer) + 1;
    if (hidden.size() <= index) hidden.resize(index + 1);
    const float* last = data + (rows - 1) * hidden_size_;
    hidden[index].assign(last, last + hidden_size_);
  }
  void OnRouter(int layer, const uint32_t* ids, const float* weights, size_t rows,
                size_t top_k) override {
    nlohmann::ordered_json& entry = router[std::to_string(layer)];
    for (size_t r = 0; r < rows; ++r) {
      const size_t at = r * top_k;
      entry["ids"].push_back(std::vector<uint32_t>(ids + at, ids + at + top_k));
      entry["weights"].push_back(std::vector<float>(weights + at, weights + at + top_k));
    }
  }

  std::vector<std::vector<float>> hidden;  // [num_layers + 1][hidden_size]
  nlohmann::ordered_json router = nlohmann::ordered_json::object();

 private:
  uint32_t hidden_size_;
};

int Run(const Flags& flags, const Globals& globals) {
  OpenModel open =
      OpenForRun(flags.model, flags.run, flags.all ? LogitsOfStep::kEvery : LogitsOfStep::kLast);
  const std::vector<model::TokenId> ids = ParseIds(flags.ids, open.model->config().vocab_size);
  if (ids.empty()) throw Error(ErrorCode::kUsage, "--ids names no token");
  if (ids.size() > open.context) {
    throw Error(ErrorCode::kUsage, "context length exceeded: " + std::to_string(ids.size()) +
                                       " tokens, " + std::to_string(open.context) +
                                       " positions (--ctx)");
  }

  if (open.router != nullptr) open.Bind(open.Choose(open.Route(ids)));
  const model::ModelConfig& config = open.model->config();
  model::KvPool pool(config, open.kv_type, open.BlocksFor(1));
  model::Sequence sequence(&pool);
  Recorder recorder(config.hidden_size);
  const bool observe = !flags.hidden.empty() || !flags.router.empty();
  std::vector<float> logits;
  using Wanted = model::SequenceChunk::Logits;
  AtomicFile out(flags.out);
  double seconds = 0.0;
  const size_t step = flags.all ? model::LogitRowsOfStep(config, open.chunk) : open.chunk;
  for (size_t begin = 0; begin < ids.size();) {
    const size_t n = std::min<size_t>(step, ids.size() - begin);
    model::SequenceChunk chunk;
    chunk.sequence = &sequence;
    chunk.tokens = std::span(ids).subspan(begin, n);
    begin += n;
    chunk.logits = flags.all ? Wanted::kAll : begin == ids.size() ? Wanted::kLast : Wanted::kNone;
    logits.clear();
    const auto start = std::chrono::steady_clock::now();
    open.model->Forward({&chunk, 1}, &logits, observe ? &recorder : nullptr);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    out.Write(BytesOf(logits));
  }
  open.checkpoint->CheckReadable();
  if (!flags.hidden.empty()) {
    AtomicFile file(flags.hidden);
    for (const std::vector<float>& row : recorder.hidden) file.Write(BytesOf(row));
    file.Commit();
  }
  if (!flags.router.empty()) {
    AtomicFile file(flags.router);
    file.Write(recorder.router.dump() + "\n");
    file.Commit();
  }
  out.Commit();
  nlohmann::ordered_json report = {
      {"out", flags.out},
      {"shape", {flags.all ? ids.size() : size_t{1}, size_t{config.vocab_size}}}};
  ReportStream(open, flags.run, seconds, &report);
  if (globals.json && flags.out != "-") PrintJson(report);
  return 0;
}

}  // namespace

Action AddLogits(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<Flags>();
  verb.add_option("MODEL", flags->model, "model file or folder")->required();
  verb.add_option("--ids", flags->ids, "token ids: 1,2,3")->required();
  verb.add_option("--out", flags->out, "file for little-endian f32 [rows, vocab_size]")->required();
  verb.add_flag("--all", flags->all, "logits of every position, not just the last");
  verb.add_option("--hidden", flags->hidden,
                  "file for the residual stream of the last position, f32 [layers + 1, hidden]");
  verb.add_option("--router", flags->router, "file for chosen experts and weights, JSON");
  AddRunFlags(&verb, &flags->run);
  return [flags, &globals] { return Run(*flags, globals); };
}

}  // namespace moewe::cli
