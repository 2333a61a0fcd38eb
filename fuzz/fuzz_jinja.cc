// A template of any bytes: compiled and rendered with a small conversation. Only TemplateError may
// come out.
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::ordered_json;
  static const ordered_json variables = ordered_json::parse(R"({
    "messages": [{"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": "Yo"}],
    "tools": [{"name": "f", "parameters": {"a": [1, 2.5, null, true]}}],
    "x": 1, "d": {"a": 1, "b": [3, 1, 2]}, "s": "h\u00e9llo \ud83d\ude00", "l": ["b", "A", "c"]})");
  try {
    const auto compiled = moewe::text::ChatTemplate::Compile(
        std::string_view(reinterpret_cast<const char*>(data), size), ordered_json::object(),
        "fuzz");
    const auto rendering = compiled->RenderVariables(variables, "2026-03-07T09:05:03");
    // Spans are in order and inside of the text.
    size_t position = 0;
    for (const auto& span : rendering.text.message_spans) {
      if (span.begin < position || span.end <= span.begin || span.end > rendering.text.text.size())
        __builtin_trap();
      position = span.end;
    }
  } catch (const moewe::text::TemplateError&) {
  }
  return 0;
}
