// The model of a .smoe vault.
#ifndef MOEWE_MODEL_CONFIG_SMOE_H_
#define MOEWE_MODEL_CONFIG_SMOE_H_

#include "formats/smoe/smoe_vault.h"
#include "model/config.h"

namespace moewe::model {

// The format has no limit of positions; a model that does not say its own gets this one.
inline constexpr uint32_t kUnknownMaxPositions = 1u << 20;

// What the vault and the shapes of its Scout say (formats/smoe/scout.h), as docs/formats/smoe.md
// divides it; the `arch` object in the Scout's metadata where moewe wrote one. Every disagreement
// is one of the config's warnings. Throws Error{kParse} for an `arch` that contradicts the vault.
ModelConfig ConfigFromSmoe(const formats::SmoeVault& vault);

// Whether the arch block alone, without the `arch` object, gives this config back but for what has
// no effect on results. `reason` says what it can't express.
bool ArchBlockHolds(const ModelConfig& config, std::string* reason);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONFIG_SMOE_H_
