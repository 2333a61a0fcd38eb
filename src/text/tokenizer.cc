// The C++ side of text-bridge: owns its handles, turns its statuses into moewe::Error.
#include "text/tokenizer.h"

#include <limits>
#include <utility>

#include "moewe/error.h"
#include "moewe_text_bridge.h"

namespace moewe::text {
namespace {

// Memory that the bridge gave out; freed on every way out of a function.
class BridgeText {
 public:
  BridgeText() = default;
  BridgeText(const BridgeText&) = delete;
  BridgeText& operator=(const BridgeText&) = delete;
  ~BridgeText() { moewe_text_free(text_); }
  MoeweText* out() { return &text_; }
  std::string str() const {
    return text_.size == 0 ? std::string() : std::string(text_.data, text_.size);
  }

 private:
  MoeweText text_{nullptr, 0};
};

class BridgeIds {
 public:
  BridgeIds() = default;
  BridgeIds(const BridgeIds&) = delete;
  BridgeIds& operator=(const BridgeIds&) = delete;
  ~BridgeIds() { moewe_ids_free(ids_); }
  MoeweIds* out() { return &ids_; }
  std::span<const uint32_t> span() const { return {ids_.data, ids_.size}; }

 private:
  MoeweIds ids_{nullptr, 0};
};

ErrorCode CodeOf(MoeweTextStatus status) {
  switch (status) {
    case MOEWE_TEXT_BAD_FILE:
      return ErrorCode::kParse;
    case MOEWE_TEXT_BAD_UTF8:
    case MOEWE_TEXT_UNKNOWN_ID:
    case MOEWE_TEXT_BAD_SPAN:
      return ErrorCode::kUsage;
    case MOEWE_TEXT_OK:
    case MOEWE_TEXT_FAILED:
      break;
  }
  return ErrorCode::kInternal;
}

void Check(MoeweTextStatus status, const BridgeText& message, const std::string& file) {
  if (status == MOEWE_TEXT_OK) return;
  const ErrorCode code = CodeOf(status);
  Where where;
  if (code != ErrorCode::kUsage) where.file = file;
  throw Error(code, "tokenizer: " + message.str(), where);
}

std::vector<TokenId> ToTokenIds(std::span<const uint32_t> ids, const std::string& file) {
  std::vector<TokenId> result;
  result.reserve(ids.size());
  for (const uint32_t id : ids) {
    if (id > static_cast<uint32_t>(std::numeric_limits<TokenId>::max())) {
      throw Error(ErrorCode::kParse, "tokenizer: token id " + std::to_string(id) + " is too large",
                  {.file = file, .field = ""});
    }
    result.push_back(static_cast<TokenId>(id));
  }
  return result;
}

uint32_t ToBridgeId(TokenId id) {
  if (id < 0) throw Error(ErrorCode::kUsage, "no token has the id " + std::to_string(id));
  return static_cast<uint32_t>(id);
}

}  // namespace

struct Tokenizer::Impl {
  MoeweTokenizer* handle = nullptr;
  std::string file;
  ~Impl() { moewe_tokenizer_free(handle); }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::FromJson(Bytes json, const std::string& file, Limits limits) {
  auto impl = std::make_unique<Impl>();
  impl->file = file;
  BridgeText message;
  const MoeweTextStatus status = moewe_tokenizer_load(
      json.data(), json.size(), limits == Limits::kApply ? 1 : 0, &impl->handle, message.out());
  Check(status, message, file);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  BridgeIds ids;
  BridgeText message;
  Check(moewe_tokenizer_encode(impl_->handle, text.data(), text.size(), nullptr, 0,
                               add_special_tokens ? 1 : 0, ids.out(), message.out()),
        message, impl_->file);
  return ToTokenIds(ids.span(), impl_->file);
}

std::vector<TokenId> Tokenizer::EncodePair(std::string_view first, std::string_view second,
                                           bool add_special_tokens) const {
  BridgeIds ids;
  BridgeText message;
  // An empty second text is still a second text, so its pointer must not be null.
  const char* pair = second.empty() ? "" : second.data();
  Check(moewe_tokenizer_encode(impl_->handle, first.data(), first.size(), pair, second.size(),
                               add_special_tokens ? 1 : 0, ids.out(), message.out()),
        message, impl_->file);
  return ToTokenIds(ids.span(), impl_->file);
}

std::vector<TokenId> Tokenizer::Encode(const OriginText& text, bool add_special_tokens) const {
  std::vector<MoeweSpan> spans;
  spans.reserve(text.message_spans.size());
  for (const OriginText::Span& span : text.message_spans) spans.push_back({span.begin, span.end});
  BridgeIds ids;
  BridgeText message;
  Check(moewe_tokenizer_encode_guarded(impl_->handle, text.text.data(), text.text.size(),
                                       spans.data(), spans.size(), add_special_tokens ? 1 : 0,
                                       ids.out(), message.out()),
        message, impl_->file);
  return ToTokenIds(ids.span(), impl_->file);
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::vector<uint32_t> bridge_ids;
  bridge_ids.reserve(ids.size());
  for (const TokenId id : ids) bridge_ids.push_back(ToBridgeId(id));
  BridgeText text;
  BridgeText message;
  Check(moewe_tokenizer_decode(impl_->handle, bridge_ids.data(), bridge_ids.size(),
                               skip_special_tokens ? 1 : 0, text.out(), message.out()),
        message, impl_->file);
  return text.str();
}

std::optional<TokenId> Tokenizer::TokenToId(std::string_view token) const {
  const int64_t id = moewe_tokenizer_token_to_id(impl_->handle, token.data(), token.size());
  if (id < 0 || id > std::numeric_limits<TokenId>::max()) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::optional<std::string> Tokenizer::IdToToken(TokenId id) const {
  if (id < 0) return std::nullopt;
  BridgeText token;
  const MoeweTextStatus status =
      moewe_tokenizer_id_to_token(impl_->handle, static_cast<uint32_t>(id), token.out(), nullptr);
  if (status != MOEWE_TEXT_OK) return std::nullopt;
  return token.str();
}

size_t Tokenizer::vocab_size() const { return moewe_tokenizer_vocab_size(impl_->handle); }

std::vector<AddedToken> Tokenizer::AddedTokens() const {
  std::vector<AddedToken> tokens;
  MoeweAddedToken token;
  for (size_t i = 0; moewe_tokenizer_added_token(impl_->handle, i, &token) != 0; ++i) {
    tokens.push_back({.content = std::string(token.content, token.content_size),
                      .id = static_cast<TokenId>(token.id),
                      .special = token.special != 0,
                      .normalized = token.normalized != 0,
                      .lstrip = token.lstrip != 0,
                      .rstrip = token.rstrip != 0,
                      .single_word = token.single_word != 0});
  }
  return tokens;
}

struct Tokenizer::Stream::Impl {
  MoeweDecodeStream* handle = nullptr;
  std::string file;
  ~Impl() { moewe_decode_stream_free(handle); }
};

Tokenizer::Stream::Stream(const Tokenizer& tokenizer, bool skip_special_tokens)
    : impl_(std::make_unique<Impl>()) {
  impl_->file = tokenizer.impl_->file;
  BridgeText message;
  Check(moewe_decode_stream_new(tokenizer.impl_->handle, skip_special_tokens ? 1 : 0,
                                &impl_->handle, message.out()),
        message, impl_->file);
}

Tokenizer::Stream::~Stream() = default;
Tokenizer::Stream::Stream(Stream&&) noexcept = default;
Tokenizer::Stream& Tokenizer::Stream::operator=(Stream&&) noexcept = default;

std::string Tokenizer::Stream::Push(TokenId id) {
  int has_piece = 0;
  BridgeText piece;
  BridgeText message;
  Check(moewe_decode_stream_push(impl_->handle, ToBridgeId(id), &has_piece, piece.out(),
                                 message.out()),
        message, impl_->file);
  return piece.str();
}

std::string Tokenizer::Stream::Finish() {
  BridgeText rest;
  BridgeText message;
  Check(moewe_decode_stream_finish(impl_->handle, rest.out(), message.out()), message, impl_->file);
  return rest.str();
}

}  // namespace moewe::text
