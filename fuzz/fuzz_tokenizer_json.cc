// Any bytes as a tokenizer.json: refused, or a tokenizer that encodes and decodes without harm.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "moewe/error.h"
#include "text/tokenizer.h"

namespace {

using moewe::text::TokenId;
using moewe::text::Tokenizer;

template <typename Call>
void Try(const Call& call) {
  try {
    call();
  } catch (const moewe::Error&) {
  }
}

void Use(const Tokenizer& tokenizer) {
  static constexpr std::array<std::string_view, 3> kTexts = {
      "", "Hello, world! <s>[INST] caf\u00e9 \u4e16\u754c \U0001F600  12345</s>",
      "<|im_start|>user\n\tx = y**2; a\u0301 \u00df \u0130<|im_end|>"};
  for (const std::string_view text : kTexts) {
    Try([&] {
      const std::vector<TokenId> ids = tokenizer.Encode(text, true);
      const std::string whole = tokenizer.Decode(ids, false);
      if (!moewe::IsUtf8(whole)) std::abort();
      Tokenizer::Stream stream(tokenizer, false);
      std::string joined;
      for (const TokenId id : ids) joined += stream.Push(id);
      joined += stream.Finish();
      if (!moewe::IsUtf8(joined)) std::abort();
    });
    Try([&] { tokenizer.EncodePair(text, "b", true); });
    Try([&] {
      moewe::text::OriginText prompt;
      prompt.text = std::string(text);
      if (!text.empty()) prompt.message_spans.push_back({0, text.size()});
      tokenizer.Encode(prompt, true);
    });
  }
  for (TokenId id = 0; id < 8; ++id) Try([&] { tokenizer.IdToToken(id); });
  tokenizer.AddedTokens();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto limits : {Tokenizer::Limits::kIgnore, Tokenizer::Limits::kApply}) {
    Try([&] { Use(*Tokenizer::FromJson({data, size}, "fuzz", limits)); });
  }
  return 0;
}
