// Chat templates with Hugging Face semantics: apply_chat_template(tokenize=False), byte for byte.
#ifndef MOEWE_TEXT_CHAT_TEMPLATE_H_
#define MOEWE_TEXT_CHAT_TEMPLATE_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "moewe/error.h"
#include "text/origin_text.h"

namespace moewe::text {

// A fault of a template or one that it raises. An Error{kParse} whose message names type and line.
class TemplateError : public Error {
 public:
  TemplateError(std::string type, std::string detail, int line, const std::string& template_name);
  // As in Python: "TypeError", "UndefinedError", ...
  const std::string& type() const { return type_; }
  // The bare message, e.g. of raise_exception.
  const std::string& detail() const { return detail_; }
  int line() const { return line_; }  // 1-based; 0 = not known

 private:
  std::string type_;
  std::string detail_;
  int line_;
};

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
  // `special_tokens`: object of names (bos_token, ...) to strings. Throws TemplateError with the
  // line for a syntax error; `name` names the template in errors.
  static std::unique_ptr<ChatTemplate> Compile(std::string_view source,
                                               const nlohmann::ordered_json& special_tokens,
                                               const std::string& name);
  // ChatML, for models that bring no template.
  static std::unique_ptr<ChatTemplate> ChatMl();
  ~ChatTemplate();

  // Throws TemplateError. Depth, size and steps are limited.
  OriginText Render(const ChatRequest& request) const;

  struct Rendering {
    OriginText text;
    std::vector<OriginText::Span>
        generation_spans;  // what `{% generation %}` blocks gave, in bytes
  };
  Rendering RenderWithSpans(const ChatRequest& request) const;
  // With these variables alone, as they are. What is in `messages`, `tools` and `documents` counts
  // as written by a message.
  Rendering RenderVariables(const nlohmann::ordered_json& variables, const std::string& now) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moewe::text

#endif  // MOEWE_TEXT_CHAT_TEMPLATE_H_
