#include "model/rope_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moewe::model {
namespace {

using Json = nlohmann::ordered_json;

// theta^(2i/dim), each step rounded to f32 as the reference implementations do: their frequencies,
// not better ones, are what the weights were trained with.
float Period(const Rope& rope, size_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
  return static_cast<float>(
      std::pow(static_cast<double>(static_cast<float>(rope.theta)), static_cast<double>(exponent)));
}

// Share of interpolation (0..1) of each frequency: a ramp over the channel index between the
// channels that turn beta_fast and beta_slow times in the original context.
double YarnRamp(const Rope& rope, size_t i) {
  const YarnScaling& yarn = *rope.yarn;
  const double dim = rope.rotary_dim;
  const auto channel = [&](double turns) {
    return dim * std::log(yarn.original_max_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = channel(yarn.beta_fast);
  double high = channel(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

std::vector<float> Frequencies(const Rope& rope, const std::vector<double>& factors) {
  std::vector<float> frequencies(rope.rotary_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double divisor = factors.empty() ? 1.0 : factors[i];
    if (rope.yarn) {
      const double ramp = YarnRamp(rope, i);
      divisor /= ramp / rope.yarn->factor + (1.0 - ramp);
    }
    frequencies[i] = static_cast<float>(1.0 / (static_cast<double>(Period(rope, i)) * divisor));
  }
  return frequencies;
}

// llama3: frequencies that turn fewer than low_freq_factor times in the original context are
// divided by factor, those above high_freq_factor stay, between them a linear blend.
std::vector<double> Llama3Factors(const JsonKeys& scaling, const Rope& rope, uint32_t original) {
  const double factor = scaling.Number("factor", kMinRopeFactor, kMaxRopeFactor);
  const double low = scaling.Number("low_freq_factor", kMinRopeFactor, kMaxRopeFactor);
  const double high = scaling.Number("high_freq_factor", kMinRopeFactor, kMaxRopeFactor);
  if (high <= low) scaling.Fail("high_freq_factor", "must be above low_freq_factor");
  std::vector<double> factors(rope.rotary_dim / 2);
  for (size_t i = 0; i < factors.size(); ++i) {
    const double turns = original / (2.0 * std::numbers::pi * static_cast<double>(Period(rope, i)));
    const double keep = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors[i] = 1.0 / ((1.0 - keep) / factor + keep);
  }
  return factors;
}

double YarnMscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void ReadYarn(const JsonKeys& scaling, uint32_t original, uint32_t max_positions, Rope* rope) {
  YarnScaling yarn;
  yarn.original_max_positions = original;
  yarn.factor = scaling.Number("factor", kMinRopeFactor, kMaxRopeFactor,
                               static_cast<double>(max_positions) / original);
  // 0 means "not given" here, as in the reference.
  const auto or_default = [&](std::string_view key, double fallback) {
    const double value = scaling.Number(key, 0.0, kMaxRopeFactor, 0.0);
    return value == 0.0 ? fallback : value;
  };
  yarn.beta_fast = or_default("beta_fast", 32.0);
  yarn.beta_slow = or_default("beta_slow", 1.0);
  const double mscale = scaling.Number("mscale", 0.0, kMaxRopeFactor, 0.0);
  const double mscale_all_dim = scaling.Number("mscale_all_dim", 0.0, kMaxRopeFactor, 0.0);
  double attention = YarnMscale(yarn.factor, 1.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0) {
    attention = YarnMscale(yarn.factor, mscale) / YarnMscale(yarn.factor, mscale_all_dim);
  }
  rope->attention_factor =
      static_cast<float>(scaling.Number("attention_factor", 0.0, kMaxRopeFactor, attention));
  yarn.truncate = scaling.Bool("truncate", true);
  rope->yarn = yarn;
}

void ReadLongrope(const JsonKeys& scaling, uint32_t original, uint32_t max_positions, Rope* rope) {
  const size_t count = rope->rotary_dim / 2;
  rope->freq_factors = scaling.Numbers("short_factor", count, kMinRopeFactor, kMaxRopeFactor);
  rope->freq_factors_long = scaling.Numbers("long_factor", count, kMinRopeFactor, kMaxRopeFactor);
  rope->long_from = original;
  const double factor = scaling.Number("factor", kMinRopeFactor, kMaxRopeFactor,
                                       static_cast<double>(max_positions) / original);
  const double attention =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
  rope->attention_factor =
      static_cast<float>(scaling.Number("attention_factor", 0.0, kMaxRopeFactor, attention));
}

}  // namespace

uint32_t RotaryDim(const JsonKeys& keys, std::string_view key, double partial_factor,
                   uint32_t head_dim) {
  if (head_dim == 0) return 0;  // nothing can rotate
  const auto dim = static_cast<uint32_t>(partial_factor * head_dim);
  if (dim < 2 || dim % 2 != 0) {
    keys.Fail(key, fmt::format("{} of head_dim {} rotates {} channels: must be even and at least 2",
                               partial_factor, head_dim, dim));
  }
  return dim;
}

void FinishRope(Rope* rope) {
  // A vector of ones means the same as none; one spelling, so that equal ropes compare equal.
  const auto is_one = [](double factor) { return factor == 1.0; };
  if (std::all_of(rope->freq_factors.begin(), rope->freq_factors.end(), is_one)) {
    rope->freq_factors.clear();
  }
  rope->inv_freq = Frequencies(*rope, rope->freq_factors);
  rope->inv_freq_long.clear();
  if (rope->long_from != 0) rope->inv_freq_long = Frequencies(*rope, rope->freq_factors_long);
}

Rope RopeFromHuggingFace(const std::optional<JsonKeys>& scaling, const RopeDefaults& defaults) {
  static const Json kEmpty = Json::object();
  const JsonKeys keys = scaling ? *scaling : JsonKeys(kEmpty, "", "rope_parameters");
  Rope rope;
  rope.interleaved = defaults.interleaved;
  rope.theta = keys.Number("rope_theta", 1.0, kMaxRopeTheta, defaults.theta);
  rope.rotary_dim =
      RotaryDim(keys, "partial_rotary_factor",
                keys.Number("partial_rotary_factor", 0.0, 1.0, defaults.partial_rotary_factor),
                defaults.head_dim);
  std::string type =
      keys.String(keys.Has("rope_type") ? "rope_type" : "type", std::string("default"));
  keys.Accept({"type"});  // the older name, which the newer one overrules
  if (defaults.yarn_means_longrope && (type == "su" || type == "yarn")) type = "longrope";

  if (defaults.sections) {
    for (const char* key : {"mrope_section", "mrope_interleaved"}) keys.Find(key);
  }

  uint32_t original = keys.Uint("original_max_position_embeddings", 1, kMaxRopePositions,
                                std::max(defaults.max_positions, 1u));
  if (defaults.original_max_positions) original = *defaults.original_max_positions;
  if (type == "linear") {
    rope.freq_factors.assign(rope.rotary_dim / 2,
                             keys.Number("factor", kMinRopeFactor, kMaxRopeFactor));
  } else if (type == "llama3") {
    rope.freq_factors = Llama3Factors(keys, rope, original);
  } else if (type == "yarn") {
    ReadYarn(keys, original, defaults.max_positions, &rope);
  } else if (type == "longrope") {
    ReadLongrope(keys, original, defaults.max_positions, &rope);
  } else if (type != "default") {
    keys.Unsupported("rope_type", fmt::format("'{}' is not supported yet; known: default, linear, "
                                              "llama3, yarn, longrope",
                                              type));
  }
  FinishRope(&rope);
  return rope;
}

}  // namespace moewe::model
