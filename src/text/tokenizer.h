// Text to token ids and back: Hugging Face's own `tokenizers` behind text-bridge, so that ids are
// exact.
//
// Control tokens are the added tokens that are flagged special, and those written <|...|> (some
// files do not flag the markers of roles and turns).
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

// One entry of added_tokens: found in the text before anything else is tokenized.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;      // left out by Decode if asked
  bool normalized = false;   // looked for after normalization
  bool lstrip = false;       // takes the whitespace before it
  bool rstrip = false;       // takes the whitespace behind it
  bool single_word = false;  // never inside of a word
};

// Immutable after loading; const methods may be called from any thread.
class Tokenizer {
 public:
  // What to do with the truncation and padding that a tokenizer.json asks for. They are leftovers
  // of training that would silently cut a prompt, so inference ignores them.
  enum class Limits { kIgnore, kApply };

  // `json` is a whole tokenizer.json; `file` names it in errors. Throws Error{kParse}.
  static std::unique_ptr<Tokenizer> FromJson(Bytes json, const std::string& file,
                                             Limits limits = Limits::kIgnore);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Special tokens written in `text` are parsed. `add_special_tokens` runs the post-processor (BOS
  // and the like). `text` must be UTF-8: anything else is Error{kUsage}.
  std::vector<TokenId> Encode(std::string_view text, bool add_special_tokens = false) const;

  // Two texts in one call.
  std::vector<TokenId> EncodePair(std::string_view first, std::string_view second,
                                  bool add_special_tokens = false) const;

  // As Encode, but control tokens are recognized only where their whole text is of template origin:
  // what a user writes never becomes one. Where none touches a message span the ids are those of
  // Encode(text).
  std::vector<TokenId> Encode(const OriginText& text, bool add_special_tokens = false) const;

  // Ids outside of the vocabulary are Error{kUsage}.
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  std::optional<TokenId> TokenToId(std::string_view token) const;
  std::optional<std::string> IdToToken(TokenId id) const;
  // Tokens, added ones included. Ids may have gaps: the greatest can be larger than this.
  size_t vocab_size() const;
  std::vector<AddedToken> AddedTokens() const;  // in the order of their ids

  // Decodes one id at a time and gives out only complete UTF-8; all pieces and what Finish returns
  // join to Decode of all ids. Ids outside of the vocabulary give no text: models pad their
  // embeddings. Not thread-safe. It may outlive the tokenizer.
  class Stream {
   public:
    Stream(const Tokenizer& tokenizer, bool skip_special_tokens);
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;

    // The text that this id completes; empty while nothing may be shown yet.
    std::string Push(TokenId id);
    // What is held back after the last id; if the decoder rethought what it gave, from there on.
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
