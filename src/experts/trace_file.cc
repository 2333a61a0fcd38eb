#include "experts/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/json.h"
#include "moewe/error.h"
#include "platform/mapped_file.h"

namespace moewe::experts {
namespace {

constexpr char kFormat[] = "moewe-trace";
constexpr uint32_t kMostVisits = 1u << 18;
constexpr uint32_t kMostExperts = 1u << 16;  // of a layer

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(MappedFile::Open(path)) {}

  RoutingTrace Read() {
    const Bytes bytes = file_->bytes();
    const Bytes first = LineAt(0);
    if (StartsOurs(first)) {
      ReadHead(ParseJson(first, path_, "line 1"));
      size_t number = 1;
      for (size_t at = first.size() + 1; at < bytes.size(); ++number) {
        const Bytes line = LineAt(at);
        if (!line.empty()) {
          ReadLine(ParseJson(line, path_, fmt::format("line {}", number + 1), at), at);
        }
        at += line.size() + 1;
      }
    } else {
      ReadRouter(ParseJson(bytes, path_, "trace"));
    }
    file_->Check();
    return Finish();
  }

 private:
  [[noreturn]] void Fail(const std::string& field, const std::string& problem) const {
    throw Error(ErrorCode::kParse, problem, {path_, field});
  }

  Bytes LineAt(size_t begin) const {
    const Bytes rest = file_->bytes().subspan(begin);
    const auto end = std::find(rest.begin(), rest.end(), uint8_t{'\n'});
    return rest.first(static_cast<size_t>(end - rest.begin()));
  }

  static bool StartsOurs(Bytes line) {
    const std::string_view text{reinterpret_cast<const char*>(line.data()), line.size()};
    return text.find(std::string("\"") + kFormat + "\"") != std::string_view::npos;
  }

  uint32_t Number(const Json& json, const std::string& field, uint32_t below) const {
    if (!json.is_number_unsigned() || json.get<uint64_t>() >= below) {
      Fail(field, fmt::format("{} is no number below {}", json.dump(), below));
    }
    return json.get<uint32_t>();
  }

  uint32_t LayerNumber(const std::string& key) const {
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    if (error != std::errc() || end != key.data() + key.size() || layer >= kMostVisits) {
      Fail(key, "is no layer number");
    }
    return layer;
  }

  void ReadHead(const Json& head) {
    if (!head.is_object() || head.value("version", Json()) != 1) {
      Fail("version", "is not a version of the trace format that moewe reads");
    }
    trace_.num_layers = Number(head.value("num_layers", Json()), "num_layers", kMostVisits);
    if (trace_.num_layers == 0) Fail("num_layers", "must not be 0");
    const Json experts = head.value("num_experts", Json());
    if (!experts.is_object()) Fail("num_experts", "must be an object");
    for (const auto& [key, count] : experts.items()) {
      num_experts_[LayerNumber(key)] = Number(count, "num_experts", kMostExperts + 1);
    }
    if (const Json size = head.value("expert_bytes", Json()); size.is_number_unsigned()) {
      trace_.expert_bytes = size.get<uint64_t>();
    }
  }

  void ReadLine(const Json& line, size_t at) {
    if (!line.is_object() || !line.contains("layer") || !line.contains("ids")) {
      Fail(fmt::format("byte {}", at), "a line has \"layer\" and \"ids\"");
    }
    AddRows(Number(line["layer"], "layer", kMostVisits), line["ids"]);
  }

  void ReadRouter(const Json& router) {
    if (!router.is_object()) Fail("trace", "is no object of layers");
    for (const auto& [key, entry] : router.items()) {
      if (!entry.is_object() || !entry.contains("ids")) Fail(key, "has no \"ids\"");
      AddRows(LayerNumber(key), entry["ids"]);
    }
  }

  void AddRows(uint32_t visit, const Json& rows) {
    const std::string field = fmt::format("layer {}", visit);
    if (!rows.is_array()) Fail(field, "has no list of rows");
    if (trace_.layers.size() <= visit) trace_.layers.resize(visit + 1);
    RoutingTrace::Layer& layer = trace_.layers[visit];
    const uint32_t limit =
        trace_.num_layers == 0 ? kMostExperts : num_experts_[visit % trace_.num_layers];
    for (const Json& row : rows) {
      if (!row.is_array() || row.empty()) Fail(field, "has a row that is no list of experts");
      if (layer.top_k == 0) layer.top_k = static_cast<uint32_t>(row.size());
      if (row.size() != layer.top_k) Fail(field, "has rows of different lengths");
      const size_t begin = layer.ids.size();
      for (const Json& id : row) {
        layer.ids.push_back(Number(id, field, limit));
        layer.num_experts = std::max(layer.num_experts, layer.ids.back() + 1);
      }
      for (size_t i = begin; i < layer.ids.size(); ++i) {
        if (std::find(layer.ids.begin() + static_cast<ptrdiff_t>(begin),
                      layer.ids.begin() + static_cast<ptrdiff_t>(i),
                      layer.ids[i]) != layer.ids.begin() + static_cast<ptrdiff_t>(i)) {
          Fail(field, fmt::format("chooses expert {} twice for one token", layer.ids[i]));
        }
      }
    }
  }

  RoutingTrace Finish() {
    if (trace_.num_layers == 0) trace_.num_layers = static_cast<uint32_t>(trace_.layers.size());
    for (uint32_t visit = 0; visit < trace_.layers.size(); ++visit) {
      RoutingTrace::Layer& layer = trace_.layers[visit];
      if (layer.top_k == 0) continue;
      const uint64_t tokens = layer.ids.size() / layer.top_k;
      if (trace_.tokens == 0) trace_.tokens = tokens;
      if (tokens != trace_.tokens) {
        Fail(fmt::format("layer {}", visit),
             fmt::format("has {} tokens, another layer {}", tokens, trace_.tokens));
      }
      if (const auto known = num_experts_.find(visit % trace_.num_layers);
          known != num_experts_.end()) {
        layer.num_experts = known->second;
      }
    }
    if (trace_.tokens == 0) Fail("trace", "records no token");
    return std::move(trace_);
  }

  const std::string& path_;
  std::unique_ptr<MappedFile> file_;
  std::map<uint32_t, uint32_t> num_experts_;  // by layer; empty if the file does not say
  RoutingTrace trace_;
};

}  // namespace

TraceWriter::TraceWriter(const std::string& path, uint32_t num_layers,
                         const std::map<uint32_t, uint32_t>& num_experts, uint64_t expert_bytes)
    : file_(path) {
  Json experts = Json::object();
  for (const auto& [layer, count] : num_experts) experts[std::to_string(layer)] = count;
  const Json head = {{"format", kFormat},
                     {"version", 1},
                     {"num_layers", num_layers},
                     {"num_experts", experts},
                     {"expert_bytes", expert_bytes}};
  file_.Write(head.dump() + "\n");
}

void TraceWriter::Add(uint32_t visit, std::span<const uint32_t> ids, size_t top_k) {
  std::string line = fmt::format("{{\"layer\":{},\"ids\":[", visit);
  for (size_t i = 0; i < ids.size(); i += top_k) {
    line += fmt::format("{}[{}]", i == 0 ? "" : ",", fmt::join(ids.subspan(i, top_k), ","));
  }
  file_.Write(line + "]}\n");
}

RoutingTrace ReadRoutingTrace(const std::string& path) { return Reader(path).Read(); }

}  // namespace moewe::experts
