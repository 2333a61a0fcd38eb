// Which keys of a config.json may be left unread.
//
// A key that nobody asked for could make the model another one than the one that is computed, so it
// is an error that names it, unless it is known to say nothing about the math, or its value asks
// for nothing.
#ifndef MOEWE_MODEL_CONFIG_KEYS_H_
#define MOEWE_MODEL_CONFIG_KEYS_H_

#include <nlohmann/json.hpp>
#include <string_view>

#include "model/json_keys.h"

namespace moewe::model {

// Names, token ids, training, sampling and bookkeeping; what the tensors say as well (biases,
// norms, which layers have experts, prediction heads); what is off, or has the value that changes
// nothing.
bool ChangesNoMath(std::string_view key, const nlohmann::ordered_json& value);

// Throws Error{kUnsupported} naming the keys of `keys`, and of the objects in it that were read
// from, that JsonKeys was not asked for, unless they change no math. To be called once everything
// is read.
void RefuseUnreadKeys(const JsonKeys& keys);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CONFIG_KEYS_H_
