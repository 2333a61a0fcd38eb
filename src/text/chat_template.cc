#include "text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/json.h"
#include "text/jinja/str_ops.h"
#include "text/jinja/unicode.h"

namespace moewe::text {
namespace {

using Json = nlohmann::ordered_json;

// Longer ones would only be attacks: the largest published template has 20 KB.
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

constexpr std::string_view kChatMl = R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string -%}
{{ message.content }}
{%- elif message.content -%}
{{ message.content | selectattr('text', 'defined') | map(attribute='text') | join('') }}
{%- endif -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%})";

std::string ErrorMessage(const std::string& type, const std::string& detail, int line) {
  // raise_exception's messages are written for readers; the other kinds say what they are.
  std::string message = type == "TemplateError" ? detail : type + ": " + detail;
  if (line > 0) message += " (line " + std::to_string(line) + ")";
  return message;
}

// What comes from people, tools and models, as opposed to the template's author.
bool IsMessageVariable(std::string_view name) {
  return name == "messages" || name == "tools" || name == "documents";
}

// As transformers prepares a message: no nulls; reasoning under one name, and `thinking` in front.
Json PrepareMessage(const Json& message) {
  if (!message.is_object()) return message;
  Json prepared = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) prepared[key] = value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!prepared.contains(name)) continue;
    const Json reasoning = prepared[name];
    prepared["reasoning_content"] = reasoning;
    Json reordered = Json::object();
    reordered["thinking"] = prepared.value("thinking", reasoning);
    for (const auto& [key, value] : prepared.items()) {
      if (key != "thinking") reordered[key] = value;
    }
    return reordered;
  }
  return prepared;
}

// A word that the messages do not contain; with a blank behind it that tells whether the template
// trims.
std::string MakeTag(const Json& messages) {
  const std::string text = messages.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string tag = "CONTINUE_FINAL_MESSAGE_TAG";
  while (text.find(tag) != std::string::npos) tag += "_X";
  return tag + " ";
}

// Puts the tag behind the text of the last message and returns that text.
std::string MarkFinalMessage(Json& messages, const std::string& tag) {
  const auto fail = [](const char* type, const std::string& message) -> std::string {
    jinja::Raise(type, message);
  };
  if (messages.empty()) return fail("IndexError", "list index out of range");
  Json& last = messages.back();
  if (!last.is_object() || !last.contains("content")) return fail("KeyError", "'content'");
  Json& content = last["content"];
  if (content.is_array()) {
    for (size_t i = content.size(); i-- > 0;) {
      if (!content[i].is_object() || !content[i].contains("text") ||
          !content[i]["text"].is_string())
        continue;
      const std::string text = content[i]["text"];
      content[i]["text"] = text + tag;
      return text;
    }
    return fail("ValueError",
                "continue_final_message is set but we could not find any text to continue in the "
                "final message!");
  }
  if (!content.is_string())
    return fail("TypeError", "the final message's content is no text to continue");
  const std::string text = content;
  content = text + tag;
  return text;
}

void Cut(jinja::Str& str, size_t end) {
  jinja::Str cut = str.Substr(0, end);
  str = std::move(cut);
}

// Ends the rendering where the tag is.
void CutAtTag(jinja::RenderResult& result, const std::string& tag,
              const std::string& final_message) {
  const std::string bare = tag.substr(0, tag.size() - 1);
  const std::string& text = result.output.text;
  const std::string stripped = jinja::Strip(jinja::Str(final_message), jinja::Ends::kBoth).text;
  const size_t found = text.rfind(bare);
  if (found == std::string::npos || jinja::Find(text, stripped) == std::string::npos) {
    jinja::Raise("ValueError",
                 "continue_final_message is set but the final message does not appear in the chat "
                 "after applying "
                 "the chat template! This can happen if the chat template deletes portions of the "
                 "final message. "
                 "Please verify the chat template and final message in your chat to ensure they "
                 "are compatible.");
  }
  const bool kept_blank = text.compare(found, tag.size(), tag) == 0;
  Cut(result.output, found);
  // A template that trims took blanks of the message as well.
  if (!kept_blank) result.output = jinja::Strip(result.output, jinja::Ends::kRight);
  const size_t size = result.output.text.size();
  std::erase_if(result.generation_spans, [&](const auto& span) { return span.begin > size; });
  for (auto& span : result.generation_spans) span.end = std::min(span.end, size);
}

}  // namespace

TemplateError::TemplateError(std::string type, std::string detail, int line,
                             const std::string& template_name)
    : Error(ErrorCode::kParse, ErrorMessage(type, detail, line),
            Where{template_name, "chat_template"}),
      type_(std::move(type)),
      detail_(std::move(detail)),
      line_(line) {}

struct ChatTemplate::Impl {
  jinja::Template tree;
  Json special_tokens;
  std::string name;

  [[noreturn]] void Throw(const jinja::Exception& problem) const {
    throw TemplateError(problem.type, problem.message, problem.line, name);
  }

  Rendering Run(const Json& variables, const std::string& now, const std::string& tag,
                const std::string& final_message) const {
    const jinja::Budget budget;
    try {
      jinja::Dict values;
      for (const auto& [key, value] : variables.items()) {
        values.Set(jinja::Value::String(key), jinja::FromJson(value, IsMessageVariable(key)));
      }
      jinja::RenderResult result = jinja::Interpreter(tree, std::move(values), now).Run();
      if (!tag.empty()) CutAtTag(result, tag, final_message);
      Rendering rendering;
      rendering.text.text = std::move(result.output.text);
      rendering.text.message_spans = std::move(result.output.spans);
      rendering.generation_spans = std::move(result.generation_spans);
      jinja::MakeValidUtf8(rendering.text.text);
      return rendering;
    } catch (const jinja::Exception& problem) {
      Throw(problem);
    }
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

std::unique_ptr<ChatTemplate> ChatTemplate::Compile(std::string_view source,
                                                    const Json& special_tokens,
                                                    const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->special_tokens = special_tokens.is_object() ? special_tokens : Json::object();
  const jinja::Budget budget;
  try {
    if (source.size() > kMaxTemplateBytes)
      jinja::Raise("MemoryError", "the template is larger than 4 MiB");
    impl->tree = jinja::CompileTemplate(source);
  } catch (const jinja::Exception& problem) {
    impl->Throw(problem);
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

std::unique_ptr<ChatTemplate> ChatTemplate::ChatMl() {
  return Compile(kChatMl, Json::object(), "ChatML");
}

OriginText ChatTemplate::Render(const ChatRequest& request) const {
  return RenderWithSpans(request).text;
}

ChatTemplate::Rendering ChatTemplate::RenderWithSpans(const ChatRequest& request) const {
  Json variables = Json::object();
  Json& messages = variables["messages"] = Json::array();
  std::string tag;
  std::string final_message;
  try {
    if (request.messages.is_array()) {
      for (const Json& message : request.messages) messages.push_back(PrepareMessage(message));
    }
    if (request.continue_final_message) {
      if (request.add_generation_prompt) {
        jinja::Raise(
            "ValueError",
            "continue_final_message and add_generation_prompt are not compatible. Use "
            "continue_final_message "
            "when you want the model to continue the final message, and add_generation_prompt when "
            "you want "
            "to add a header that will prompt it to start a new assistant message instead.");
      }
      tag = MakeTag(messages);
      final_message = MarkFinalMessage(messages, tag);
    }
  } catch (const jinja::Exception& problem) {
    impl_->Throw(problem);
  }
  variables["tools"] = request.tools;
  variables["documents"] = request.documents;
  variables["add_generation_prompt"] = request.add_generation_prompt;
  for (const Json* extra :
       std::initializer_list<const Json*>{&impl_->special_tokens, &request.variables}) {
    if (!extra->is_object()) continue;
    for (const auto& [key, value] : extra->items()) variables[key] = value;
  }
  return impl_->Run(variables, request.now, tag, final_message);
}

ChatTemplate::Rendering ChatTemplate::RenderVariables(const Json& variables,
                                                      const std::string& now) const {
  return impl_->Run(variables, now, "", "");
}

}  // namespace moewe::text
