#include "text/bundle_template.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace moewe::text {

std::unique_ptr<ChatTemplate> TemplateOfBundle(const Json& bundle, const Json& special_tokens,
                                               const std::string& name) {
  if (!bundle.is_object()) return nullptr;
  const auto source = bundle.find("chat_template");
  if (source == bundle.end() || !source->is_string()) return nullptr;
  Json tokens = Json::object();
  for (const auto& [key, value] : bundle.items()) {
    if (value.is_string() && std::string_view(key).ends_with("_token")) tokens[key] = value;
  }
  for (const auto& [key, value] : special_tokens.items()) tokens[key] = value;
  return ChatTemplate::Compile(source->get_ref<const std::string&>(), tokens, name);
}

}  // namespace moewe::text
