// Layers with a recurrent state (linear attention, short convolutions) as Hugging Face configs and
// CMF headers spell them.
#ifndef MOEWE_MODEL_CONFIG_LINEAR_H_
#define MOEWE_MODEL_CONFIG_LINEAR_H_

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/families.h"
#include "model/json_keys.h"

namespace moewe::model {

// Whether a layer type of a Hugging Face config is one of these.
bool IsRecurrentType(std::string_view type);

// Which layers are recurrent: layer_types, or the family's own keys. Throws Error{kParse} naming
// the key.
std::vector<bool> RecurrentLayers(const JsonKeys& keys, const FamilyRow& family,
                                  uint32_t num_layers);

// Sizes of the family's recurrent layers. Throws Error{kParse, kUnsupported} naming the key.
LinearConfig LinearFromHuggingFace(const JsonKeys& keys, const FamilyRow& family);

// The keys linear_* of arch, as existing files have them, for layers of this kind.
LinearConfig LinearFromCmf(const JsonKeys& arch, MixerKind kind);
void LinearToCmf(const LinearConfig& linear, MixerKind kind, nlohmann::ordered_json* arch);

// A tag of layer_types; MixerKind::kAttention for those of attention.
MixerKind RecurrentKindOfTag(std::string_view tag);
std::string_view TagOfRecurrentKind(MixerKind kind);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONFIG_LINEAR_H_
