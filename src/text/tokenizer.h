// Text to token ids and back: Hugging Face's own `tokenizers` behind text-bridge, so that ids are exact.
#ifndef MOEWE_TEXT_TOKENIZER_H_
#define MOEWE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_reader.h"
#include "text/origin_text.h"

namespace moewe::text {

using TokenId = int32_t;

// Immutable after loading; const methods may be called from any thread.
class Tokenizer {
 public:
  // `json` is a whole tokenizer.json; `file` names it in errors. Throws Error{kParse}.
  static std::unique_ptr<Tokenizer> FromJson(Bytes json, const std::string& file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Special tokens written in `text` are parsed. `add_special_tokens` runs the post-processor (BOS
  // and the like). `text` must be UTF-8: anything else is Error{kUsage}.
  std::vector<TokenId> Encode(std::string_view text, bool add_special_tokens = false) const;

  // Two texts in one call.
  std::vector<TokenId> EncodePair(std::string_view first, std::string_view second,
                                  bool add_special_tokens = false) const;

  // As Encode, but special tokens are recognized only where their whole text is of template origin: what a
  // user writes never becomes a special token.
  std::vector<TokenId> Encode(const OriginText& text, bool add_special_tokens = false) const;

  // Ids outside of the vocabulary are Error{kUsage}.
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::optional<TokenId> TokenToId(std::string_view token) const;
  std::optional<std::string> IdToToken(TokenId id) const;
  size_t vocab_size() const;  // with added tokens

  // Decodes one id at a time and gives out only complete UTF-8. Not thread-safe; must not outlive the
  // tokenizer.
  class Stream {
   public:
    Stream(const Tokenizer& tokenizer, bool skip_special_tokens);
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;

    // The text that this id completes; empty while nothing may be shown yet.
    std::string Push(TokenId id);
    // What is still held back, after the last id.
    std::string Finish();

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moewe::text

#endif  // MOEWE_TEXT_TOKENIZER_H_
