// The chat template that a model brings.
#ifndef MOEWE_CLI_MODEL_TEMPLATE_H_
#define MOEWE_CLI_MODEL_TEMPLATE_H_

#include <memory>
#include <string>

#include "base/json.h"
#include "text/chat_template.h"

namespace moewe::cli {

// The template of a chat bundle (formats::Checkpoint::chat_bundle), compiled with the bundle's
// special tokens and those of `special_tokens`, which win; null if the bundle has none. `name` is
// the model, for errors. Throws text::TemplateError.
std::unique_ptr<text::ChatTemplate> TemplateOfBundle(const Json& bundle, const Json& special_tokens,
                                                     const std::string& name);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_MODEL_TEMPLATE_H_
