// Chat templates against the goldens: one feature each (micro.jsonl), and published templates.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "golden.h"

namespace moewe::text {
namespace {

using Json = nlohmann::ordered_json;

std::string ReadText(const std::filesystem::path& path) {
  const auto bytes = golden::ReadBytes(path);
  return {bytes.begin(), bytes.end()};
}

std::vector<Json> ReadLines(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

size_t CodePoints(const std::string& text, size_t bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes; ++i)
    count += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

// Pass = an error of the same kind; for some kinds the message or the line must be exact.
void ExpectSameError(const TemplateError& error, const Json& expected) {
  EXPECT_EQ(error.type(), expected["type"]) << error.what();
  if (error.type() == "TemplateError") {
    EXPECT_EQ(error.detail(), expected["message"]);
  }
  if (error.type() == "TemplateSyntaxError" || error.type() == "TemplateAssertionError") {
    EXPECT_EQ(error.line(), expected["line"]) << error.what();
  }
}

void CheckFeature(const Json& line, const std::string& now) {
  SCOPED_TRACE(line["id"].get<std::string>() + ": " + line["template"].get<std::string>());
  try {
    const auto compiled =
        ChatTemplate::Compile(line["template"].get<std::string>(), Json::object(), "t");
    const auto rendering = compiled->RenderVariables(line["context"], now);
    if (line.contains("error")) {
      ADD_FAILURE() << "should fail: " << line["error"] << ", gives " << rendering.text.text;
      return;
    }
    EXPECT_EQ(rendering.text.text, line["output"].get<std::string>());
    if (line.contains("generation_spans")) {
      Json spans = Json::array();
      for (const auto& span : rendering.generation_spans) {
        spans.push_back(Json::array({CodePoints(rendering.text.text, span.begin),
                                     CodePoints(rendering.text.text, span.end)}));
      }
      EXPECT_EQ(spans, line["generation_spans"]);
    }
  } catch (const TemplateError& error) {
    if (line.contains("error")) {
      ExpectSameError(error, line["error"]);
    } else {
      ADD_FAILURE() << error.what();
    }
  }
}

constexpr char kNow[] = "2026-03-07T09:05:03";

TEST(ChatTemplate, Features) {
  const auto lines = ReadLines(golden::Path("text/chat/micro.jsonl"));
  ASSERT_EQ(lines.size(), 202U);
  for (const Json& line : lines) CheckFeature(line, kNow);
}

TEST(ChatTemplate, PublishedTemplates) {
  MOEWE_NEEDS_SHARED("golden/text/chat/templates.json");
  const auto index = golden::ReadJson(golden::SharedPath("golden/text/chat/templates.json"));
  size_t cases = 0;
  for (const auto& [name, entry] : index["templates"].items()) {
    SCOPED_TRACE(name);
    const auto compiled = ChatTemplate::Compile(
        ReadText(golden::SharedPath("golden/text/chat/templates/" + name + ".jinja")),
        Json::parse(entry["special_tokens"].dump()), name);
    for (const Json& line :
         ReadLines(golden::SharedPath("golden/text/chat/cases/" + name + ".jsonl"))) {
      SCOPED_TRACE(line["id"].get<std::string>());
      ++cases;
      ChatRequest request;
      request.messages = line["messages"];
      request.tools = line["tools"];
      request.documents = line["documents"];
      request.add_generation_prompt = line["add_generation_prompt"];
      request.continue_final_message = line["continue_final_message"];
      request.variables = line["kwargs"];
      request.now = index["now"];
      try {
        const OriginText text = compiled->Render(request);
        if (line.contains("error")) {
          ADD_FAILURE() << "should fail: " << line["error"];
        } else {
          EXPECT_EQ(text.text, line["output"].get<std::string>());
        }
      } catch (const TemplateError& error) {
        if (line.contains("error")) {
          ExpectSameError(error, line["error"]);
        } else {
          ADD_FAILURE() << error.what();
        }
      }
    }
  }
  EXPECT_EQ(cases, 1394U);
}

}  // namespace
}  // namespace moewe::text
