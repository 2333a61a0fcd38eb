// The chat template that a model brings.
#ifndef MOEWE_TEXT_BUNDLE_TEMPLATE_H_
#define MOEWE_TEXT_BUNDLE_TEMPLATE_H_

#include <memory>
#include <string>

#include "base/json.h"
#include "text/chat_template.h"

namespace moewe::text {

// The template of a chat bundle (CMF section 6.1), compiled with the bundle's
// special tokens and those of `special_tokens`, which win; null if the bundle has none. `name` is
// the model, for errors. Throws TemplateError.
std::unique_ptr<ChatTemplate> TemplateOfBundle(const Json& bundle, const Json& special_tokens,
                                               const std::string& name);

}  // namespace moewe::text

#endif  // MOEWE_TEXT_BUNDLE_TEMPLATE_H_
