// Chat templates with Hugging Face semantics: apply_chat_template(tokenize=False), byte for byte.
#ifndef MOEWE_TEXT_CHAT_TEMPLATE_H_
#define MOEWE_TEXT_CHAT_TEMPLATE_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/origin_text.h"

namespace moewe::text {

// What apply_chat_template takes. All JSON keeps its key order.
struct ChatRequest {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;      // null if not given
  nlohmann::ordered_json documents;  // null if not given
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // kwargs; win over the rest
  std::string now;  // ISO local time "2026-03-07T09:05:03" for strftime_now; empty = the clock
};

// A compiled template. Immutable; Render may be called from any thread.
class ChatTemplate {
 public:
  // `special_tokens`: object of names (bos_token, ...) to strings. Throws Error{kParse} with the
  // line for a syntax error; `name` names the template in errors.
  static std::unique_ptr<ChatTemplate> Compile(std::string_view source,
                                               const nlohmann::ordered_json& special_tokens,
                                               const std::string& name);
  // ChatML, for models that bring no template.
  static std::unique_ptr<ChatTemplate> ChatMl();
  ~ChatTemplate();

  // Throws Error{kParse} (message and line of the template error). Depth, size and steps are
  // limited.
  OriginText Render(const ChatRequest& request) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moewe::text

#endif  // MOEWE_TEXT_CHAT_TEMPLATE_H_
