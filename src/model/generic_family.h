// A mixture-of-experts model whose model_type nobody has told us about, read by the common keys.
#ifndef MOEWE_MODEL_GENERIC_FAMILY_H_
#define MOEWE_MODEL_GENERIC_FAMILY_H_

#include <optional>
#include <string>

#include "model/families.h"
#include "model/json_keys.h"

namespace moewe::model {

// A row made for this config: a pre-norm decoder with softmax routing over SwiGLU experts, as the
// keys that such models share describe it. Nothing if a key that could change the math is unknown,
// or one that is needed is not there; `problem` says which. Views of the row point into `keys`.
std::optional<FamilyRow> GenericFamily(const JsonKeys& keys, std::string* problem);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_GENERIC_FAMILY_H_
