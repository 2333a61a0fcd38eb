// What of a checkpoint goes into a vault and what into its Scout.
#ifndef MOEWE_CONVERT_SMOE_PLAN_H_
#define MOEWE_CONVERT_SMOE_PLAN_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/safetensors/safetensors_header.h"
#include "formats/smoe/vault_writer.h"
#include "model/config.h"

namespace moewe::convert {

struct ScoutTensor {
  formats::SafetensorsTensor target;
  formats::TensorView source;
  bool copied() const { return target.dtype == source.dtype; }
};

struct SmoePlan {
  model::ModelConfig config;
  std::vector<formats::smoe::PlannedExpert> experts;         // by layer, then expert
  std::vector<std::array<formats::TensorView, 3>> matrices;  // of each: gate, up, down
  std::vector<ScoutTensor> scout;                            // in file order
  formats::smoe::ArchBlock arch;
  std::string arch_json;  // for moewe.arch
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

// Binds the source like a model, so that one which could not run is refused. Throws as
// ConvertToSmoe says.
SmoePlan PlanSmoe(const formats::Checkpoint& source, bool plain_scout);

// The arch block for a config: what `vault upgrade` writes, too. `json` is the source's
// config.json, or null; presence flags are left at 0.
formats::smoe::ArchBlock ArchBlockOf(const model::ModelConfig& config,
                                     const nlohmann::ordered_json& json);

}  // namespace moewe::convert

#endif  // MOEWE_CONVERT_SMOE_PLAN_H_
