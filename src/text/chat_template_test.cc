// Chat templates against the goldens: one feature each (micro.jsonl), and published templates.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "golden.h"
#include "paths.h"

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
  EXPECT_EQ(error.type(), expected["type"].get<std::string>()) << error.what();
  if (error.type() == "TemplateError") {
    EXPECT_EQ(error.detail(), expected["message"].get<std::string>());
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

// Cases of our own, answered by jinja2 3.1.6 (tests/text/README.md). The first line holds the
// context of all.
TEST(ChatTemplate, FurtherFeatures) {
  const auto lines =
      ReadLines(std::filesystem::path(paths::SourceDir()) / "tests/text/jinja_extra.jsonl");
  ASSERT_GT(lines.size(), 700U);
  for (size_t i = 1; i < lines.size(); ++i) {
    Json line = lines[i];
    line["context"] = lines[0]["context"];
    CheckFeature(line, kNow);
  }
}

std::string FailureOf(const std::string& source) {
  try {
    ChatTemplate::Compile(source, Json::object(), "t")->RenderVariables(Json::object(), kNow);
  } catch (const TemplateError& error) {
    return error.type();
  }
  return "";
}

TEST(ChatTemplate, HostileTemplatesAreErrors) {
  EXPECT_EQ(
      FailureOf("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
      "RuntimeError");
  EXPECT_EQ(FailureOf("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "RecursionError");
  EXPECT_EQ(FailureOf("{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ "
                      "n.x %}{% endfor %}"),
            "MemoryError");
  EXPECT_EQ(FailureOf("{{ 'a' * 10 ** 12 }}"), "MemoryError");
  EXPECT_EQ(FailureOf("{{ [1] * 10 ** 9 }}"), "MemoryError");
  EXPECT_EQ(FailureOf("{{ 3 ** (10 ** 9) }}"), "OverflowError");
  EXPECT_EQ(FailureOf("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), "RecursionError");
  EXPECT_EQ(FailureOf("{{ " + std::string(9999, '(') + "1" + std::string(9999, ')') + " }}"),
            "RecursionError");
  // Nested deeply, but never walked: must not overflow the stack when it is freed.
  EXPECT_EQ(FailureOf("{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% set n.x = [n.x] "
                      "%}{% endfor %}"),
            "");
  std::string names;
  for (int i = 0; i < 3000; ++i) {
    names +=
        "{% if x" + std::to_string(i) + " %}{% set y" + std::to_string(i) + " = 1 %}{% endif %}";
  }
  EXPECT_EQ(FailureOf(names), "");  // linear in the number of names
}

// What of a rendering counts as written by messages, in brackets.
std::string Marked(const std::string& source) {
  ChatRequest request;
  request.messages = Json::parse(R"([{"role": "user", "content": " Hi <|end|> you "}])");
  const auto compiled = ChatTemplate::Compile(source, Json{{"eos_token", "<|end|>"}}, "t");
  const OriginText text = compiled->Render(request);
  std::string out;
  size_t position = 0;
  for (const auto& span : text.message_spans) {
    out += text.text.substr(position, span.begin - position) + "[" +
           text.text.substr(span.begin, span.end - span.begin) + "]";
    position = span.end;
  }
  return out + text.text.substr(position);
}

TEST(ChatTemplate, OriginOfText) {
  EXPECT_EQ(
      Marked("{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"),
      "<[user]>[ Hi <|end|> you ]<|end|>");
  EXPECT_EQ(Marked("{{ 'a' + messages[0].content.strip() + eos_token }}"),
            "a[Hi <|end|> you]<|end|>");
  EXPECT_EQ(Marked("{{ ('x' ~ messages[0].content)[:5] }}"), "x[ Hi ]");
  EXPECT_EQ(Marked("{{ messages[0].content.split(' ') | join(eos_token) }}"),
            "<|end|>[Hi]<|end|>[<|end|>]<|end|>[you]<|end|>");
  EXPECT_EQ(Marked("{{ messages[0].content.replace('Hi', eos_token) }}"),
            "[ ]<|end|>[ <|end|> you ]");
  EXPECT_EQ(Marked("{{ messages | tojson }}"),
            "[{\"[role]\": \"[user]\", \"[content]\": \"[ Hi <|end|> you ]\"}]");
  EXPECT_EQ(Marked("{{ '%s|%s' % (messages[0].role, eos_token) }}{{ '{}{}'.format(eos_token, "
                   "messages[0].role) }}"),
            "[user]|<|end|><|end|>[user]");
  EXPECT_EQ(Marked("{{ (messages[0].role ~ eos_token) | upper }}"), "[USER<|END|>]");
  EXPECT_EQ(Marked("{% set x %}{{ messages[0].role }}{% endset %}{% macro f(y) %}<{{ y }}>{% "
                   "endmacro %}{{ f(x) }}"),
            "<[user]>");
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
