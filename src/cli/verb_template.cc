// `template`: what a model's chat template makes of messages.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/bytes_of.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/text_input.h"
#include "cli/verbs.h"
#include "formats/checkpoint.h"
#include "moewe/error.h"
#include "text/bundle_template.h"
#include "text/chat_template.h"

namespace moewe::cli {
namespace {

struct TemplateFlags {
  std::string model;
  std::string messages;
  std::string tools;
  std::string special_tokens;
  std::string now;
  std::string batch;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
};

Json ParseText(std::string_view text, const std::string& path, const std::string& field) {
  // Python's reader takes a key twice, too.
  return ParseJson(BytesOf(text), path, field, 0,
                   {.duplicate_keys = JsonOptions::DuplicateKeys::kLastWins});
}

std::unique_ptr<text::ChatTemplate> LoadTemplate(const TemplateFlags& flags) {
  const Json given = flags.special_tokens.empty()
                         ? Json()
                         : ParseText(ReadTextFile(flags.special_tokens), flags.special_tokens, "");
  if (!given.is_null() && !given.is_object()) {
    throw Error(ErrorCode::kParse, "special tokens are an object of names to strings",
                {.file = flags.special_tokens, .field = ""});
  }
  if (flags.model.ends_with(".jinja")) {
    return text::ChatTemplate::Compile(ReadTextFile(flags.model), given, flags.model);
  }
  const auto checkpoint = formats::OpenCheckpoint(flags.model);
  auto compiled = text::TemplateOfBundle(checkpoint->chat_bundle(), given, flags.model);
  if (compiled != nullptr) return compiled;
  LogInfo("the model has no chat template; this is ChatML");
  return text::ChatTemplate::ChatMl();
}

Json Member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? Json() : *found;
}

bool Flag(const Json& object, const char* key, bool fallback) {
  const Json value = Member(object, key);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

Json TemplateErrorJson(const text::TemplateError& error) {
  Json json = {{"code", ErrorCodeName(error.code())},
               {"type", error.type()},
               {"message", error.detail()},
               {"line", nullptr}};
  if (error.line() > 0) json["line"] = error.line();
  return {{"error", json}};
}

// Byte spans as code point spans.
Json InCodePoints(const std::string& text, const std::vector<text::OriginText::Span>& spans) {
  const auto count = [&](size_t bytes) {
    size_t points = 0;
    for (size_t i = 0; i < bytes; ++i) {
      points += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 ? 1 : 0;
    }
    return points;
  };
  Json list = Json::array();
  for (const auto& span : spans) list.push_back(Json::array({count(span.begin), count(span.end)}));
  return list;
}

Json OutputJson(const text::ChatTemplate::Rendering& rendering) {
  Json json = {{"output", rendering.text.text}};
  if (!rendering.generation_spans.empty()) {
    json["generation_spans"] = InCodePoints(rendering.text.text, rendering.generation_spans);
  }
  return json;
}

text::ChatRequest RequestOf(const Json& line, const TemplateFlags& flags) {
  text::ChatRequest request;
  request.messages = Member(line, "messages");
  request.tools = Member(line, "tools");
  request.documents = Member(line, "documents");
  request.continue_final_message =
      Flag(line, "continue_final_message", flags.continue_final_message);
  request.add_generation_prompt =
      Flag(line, "add_generation_prompt",
           !flags.no_generation_prompt && !request.continue_final_message);
  request.variables = Member(line, "kwargs");
  request.now = flags.now;
  return request;
}

// Lines to lines. The model's template is loaded when the first line needs it.
class Batch {
 public:
  explicit Batch(const TemplateFlags& flags) : flags_(flags) {}

  // The exit code: 0 unless a line is none.
  int Run() {
    TextLines lines(flags_.batch);
    int exit_code = 0;
    for (std::string source; lines.Next(&source);) {
      Json answer;
      try {
        answer = Answer(source, lines.number());
      } catch (const Error& error) {
        if (error.where().file != flags_.batch) throw;  // of the model, not of the line
        answer = {{"error", ErrorJson(error)}};
        if (exit_code == 0) {
          exit_code = ExitCode(error.code());
          LogWarning(error.what());
        }
      }
      // ASCII: some readers take U+2028 and its like for the end of a line.
      const std::string text = answer.dump(-1, ' ', true) + "\n";
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return exit_code;
  }

 private:
  Json Answer(const std::string& source, size_t number) {
    const std::string field = "line " + std::to_string(number);
    const Json line = ParseText(source, flags_.batch, field);
    if (!line.is_object()) {
      throw Error(ErrorCode::kParse, "a line must be a JSON object",
                  {.file = flags_.batch, .field = field});
    }
    try {
      if (const Json own = Member(line, "template"); own.is_string()) {
        const Json context = Member(line, "context");
        const auto compiled = text::ChatTemplate::Compile(own.get_ref<const std::string&>(),
                                                          Json::object(), "template");
        return OutputJson(compiled->RenderVariables(
            context.is_object() ? context : Json(Json::object()), flags_.now));
      }
      if (!line.contains("messages")) {
        throw Error(ErrorCode::kParse, "a line needs 'messages', or 'template' and 'context'",
                    {.file = flags_.batch, .field = field});
      }
      if (template_ == nullptr) template_ = LoadTemplate(flags_);
      return {{"output", template_->Render(RequestOf(line, flags_)).text}};
    } catch (const text::TemplateError& error) {
      return TemplateErrorJson(error);
    }
  }

  const TemplateFlags& flags_;
  std::unique_ptr<text::ChatTemplate> template_;
};

int RenderOne(const TemplateFlags& flags, bool json) {
  Json line = ParseText(ReadTextFile(flags.messages), flags.messages, "");
  if (line.is_array()) line = Json{{"messages", line}};
  if (!line.is_object() || !Member(line, "messages").is_array()) {
    throw Error(ErrorCode::kParse, "messages are a list of objects with role and content",
                {.file = flags.messages, .field = "messages"});
  }
  if (!flags.tools.empty()) line["tools"] = ParseText(ReadTextFile(flags.tools), flags.tools, "");
  const text::OriginText rendered = LoadTemplate(flags)->Render(RequestOf(line, flags));
  if (json) {
    PrintJson({{"output", rendered.text}});
  } else {
    // Byte for byte: a newline at the end would be the template's.
    std::fwrite(rendered.text.data(), 1, rendered.text.size(), stdout);
  }
  return 0;
}

int Template(const TemplateFlags& flags, bool json) {
  if (flags.messages.empty() == flags.batch.empty()) {
    throw Error(ErrorCode::kUsage, "template needs one of --messages FILE and --batch FILE");
  }
  if (flags.batch.empty()) return RenderOne(flags, json);
  return Batch(flags).Run();
}

}  // namespace

Action AddTemplate(CLI::App& verb, const Globals& globals) {
  auto flags = std::make_shared<TemplateFlags>();
  verb.add_option("MODEL", flags->model, "model, or a template in a .jinja file")->required();
  verb.add_option("--messages", flags->messages,
                  "JSON (- = stdin): the list of messages, or an object with \"messages\", "
                  "\"tools\", \"documents\", \"kwargs\"");
  verb.add_option("--tools", flags->tools, "JSON: the list of tools");
  verb.add_option("--special-tokens", flags->special_tokens,
                  "JSON: names (bos_token, ...) to strings");
  verb.add_option("--now", flags->now, "what the clock says: 2026-03-07T09:05:03");
  verb.add_flag("--no-generation-prompt", flags->no_generation_prompt,
                "do not open the assistant's answer");
  verb.add_flag("--continue", flags->continue_final_message, "leave the last message open");
  verb.add_option("--batch", flags->batch,
                  "JSON lines (- = stdin), each as --messages or with its own \"template\" and "
                  "\"context\"");
  return [flags, &globals] { return Template(*flags, globals.json); };
}

}  // namespace moewe::cli
