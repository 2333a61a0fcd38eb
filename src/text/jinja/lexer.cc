#include <algorithm>
#include <optional>

#include "text/jinja/string_literal.h"
#include "text/jinja/token.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string Normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

// Longest first, so that the first match wins.
constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalize(source)) {}

  std::vector<Token> Run() {
    while (!failed_ && pos_ < source_.size()) LexData();
    if (!failed_) Push(TokenType::kEnd, "", tokens_.empty() ? 1 : tokens_.back().line);
    return std::move(tokens_);
  }

 private:
  void Push(TokenType type, std::string text, int line) {
    tokens_.push_back({type, std::move(text), line});
  }
  void Fail(std::string message, int line) {
    failed_ = true;
    Push(TokenType::kError, std::move(message), line);
  }
  void Fail(std::string message) { Fail(std::move(message), line_); }

  bool At(size_t pos, std::string_view text) const {
    return std::string_view(source_).substr(pos, text.size()) == text;
  }
  // The first position at or behind `pos` that holds no whitespace.
  size_t SkipSpace(size_t pos) const {
    while (pos < source_.size()) {
      size_t next = pos;
      if (!IsSpace(NextCodePoint(source_, next))) break;
      pos = next;
    }
    return pos;
  }
  void MoveTo(size_t pos) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(pos), '\n'));
    pos_ = pos;
  }

  // Text up to the next tag (or the end), then that tag.
  void LexData() {
    size_t open = pos_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) {
        Push(TokenType::kData, source_.substr(pos_), line_);
        MoveTo(source_.size());
        return;
      }
      const char kind = source_[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++open;
    }
    const char kind = source_[open + 1];
    size_t inside = open + 2;
    const char sign = inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+')
                          ? source_[inside++]
                          : '\0';
    PushText(pos_, open, sign, kind != '{');
    MoveTo(open);
    if (kind == '#') {
      LexComment(inside);
    } else if (kind == '{') {
      Push(TokenType::kVariableBegin, "{{", line_);
      MoveTo(inside);
      LexTag("}}", TokenType::kVariableEnd);
    } else if (const auto raw = RawBegin(inside)) {
      LexRaw(*raw);
    } else {
      Push(TokenType::kBlockBegin, "{%", line_);
      MoveTo(inside);
      LexTag("%}", TokenType::kBlockEnd);
    }
  }

  // Emits the text [begin, end) before a tag with this sign, stripped as the sign and lstrip_blocks
  // ask.
  void PushText(size_t begin, size_t end, char sign, bool lstrip) {
    std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      size_t keep = text.size();
      while (keep > 0) {
        const size_t start = PreviousStart(text, keep);
        size_t next = start;
        if (!IsSpace(NextCodePoint(text, next))) break;
        keep = start;
      }
      text = text.substr(0, keep);
    } else if (sign != '+' && lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && begin + line_start < end &&
          SkipSpace(begin + line_start) >= end) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) Push(TokenType::kData, std::string(text), line_);
  }

  // Behind the closing delimiter at `close` of length 2: what `-`, `+` or trim_blocks (if `trim`)
  // swallow.
  size_t AfterClose(size_t behind, char sign, bool trim) const {
    if (sign == '-') return SkipSpace(behind);
    if (sign != '+' && trim && behind < source_.size() && source_[behind] == '\n')
      return behind + 1;
    return behind;
  }

  void FinishTag(size_t pos) {
    MoveTo(pos);
    line_starting_ = pos > 0 && source_[pos - 1] == '\n';
  }

  void LexComment(size_t inside) {
    if (inside >= source_.size())
      return MoveTo(inside);  // nothing follows: no error in Jinja, either
    const size_t close = source_.find("#}", inside);
    if (close == std::string::npos) return Fail("Missing end of comment tag");
    const char before = close > inside ? source_[close - 1] : '\0';
    FinishTag(AfterClose(close + 2, before == '-' || before == '+' ? before : '\0', true));
  }

  // {% raw %}: the position behind the tag.
  std::optional<size_t> RawBegin(size_t inside) const {
    size_t pos = SkipSpace(inside);
    if (!At(pos, "raw")) return std::nullopt;
    pos = SkipSpace(pos + 3);
    if (At(pos, "-%}")) return SkipSpace(pos + 3);
    if (At(pos, "%}")) return pos + 2;
    return std::nullopt;
  }

  void LexRaw(size_t begin) {
    const int line = line_;
    FinishTag(begin);
    if (begin >= source_.size()) return;
    for (size_t open = source_.find("{%", begin); open != std::string::npos;
         open = source_.find("{%", open + 1)) {
      size_t pos = open + 2;
      const char sign = pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+')
                            ? source_[pos++]
                            : '\0';
      pos = SkipSpace(pos);
      if (!At(pos, "endraw")) continue;
      pos = SkipSpace(pos + 6);
      char end_sign = '\0';
      if (pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+'))
        end_sign = source_[pos++];
      if (!At(pos, "%}")) continue;
      PushText(begin, open, sign, true);
      FinishTag(AfterClose(pos + 2, end_sign, true));
      return;
    }
    Fail("Missing end of raw directive", line);
  }

  // The expression part of {{ }} or {% %}.
  void LexTag(std::string_view end, TokenType end_type) {
    const bool trim = end_type == TokenType::kBlockEnd;
    brackets_.clear();
    while (!failed_) {
      if (pos_ >= source_.size()) return;  // the parser misses the end
      if (brackets_.empty()) {
        const char sign = source_[pos_];
        const bool minus = sign == '-' && At(pos_ + 1, end);
        const bool plus = sign == '+' && trim && At(pos_ + 1, end);
        if (minus || plus || At(pos_, end)) {
          const size_t behind = pos_ + (minus || plus ? 3 : 2);
          Push(end_type, std::string(end), line_);
          FinishTag(AfterClose(behind, minus || plus ? sign : '\0', trim));
          return;
        }
      }
      LexToken();
    }
  }

  void LexToken() {
    const size_t after_space = SkipSpace(pos_);
    if (after_space != pos_) return MoveTo(after_space);
    if (LexNumber()) return;
    size_t next = pos_;
    const char32_t first = NextCodePoint(source_, next);
    size_t end = pos_;
    for (size_t probe = pos_;
         probe < source_.size() && IsWordChar(NextCodePoint(source_, probe));) {
      end = probe;
    }
    if (end > pos_) {
      std::string name = source_.substr(pos_, end - pos_);
      if (!IsIdentifier(name)) return Fail("Invalid character in identifier");
      Push(TokenType::kName, std::move(name), line_);
      return MoveTo(end);
    }
    if ((first == '\'' || first == '"') && LexString(static_cast<char>(first))) return;
    for (const std::string_view op : kOperators) {
      if (At(pos_, op)) return LexOperator(op);
    }
    const std::string shown =
        first == '\'' ? "\"'\"" : "'" + source_.substr(pos_, next - pos_) + "'";
    size_t offset = 0;
    for (size_t p = 0; p < pos_; ++offset) NextCodePoint(source_, p);
    Fail("unexpected char " + shown + " at " + std::to_string(offset));
  }

  static bool IsIdentifier(std::string_view name) {
    size_t pos = 0;
    if (!IsIdentifierStart(NextCodePoint(name, pos))) return false;
    while (pos < name.size()) {
      if (!IsIdentifierPart(NextCodePoint(name, pos))) return false;
    }
    return true;
  }

  // Digits with single underscores between them, from `pos`; returns the end (`pos` if there are
  // none).
  template <typename Predicate>
  size_t Digits(size_t pos, Predicate is_digit) const {
    size_t end = pos;
    while (end < source_.size()) {
      if (is_digit(source_[end])) {
        ++end;
      } else if (end > pos && source_[end] == '_' && end + 1 < source_.size() &&
                 is_digit(source_[end + 1])) {
        ++end;
      } else {
        break;
      }
    }
    return end;
  }

  // The end of a float literal at pos_, or pos_. None directly behind a dot: `l.0.1` has two
  // integers.
  size_t FloatEnd() const {
    if (pos_ > 0 && source_[pos_ - 1] == '.') return pos_;
    const size_t whole = Digits(pos_, IsAsciiDigit);
    if (whole == pos_) return pos_;
    size_t end = whole;
    if (end < source_.size() && source_[end] == '.') {
      const size_t fraction = Digits(end + 1, IsAsciiDigit);
      if (fraction > end + 1) end = fraction;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        ++exponent;
      const size_t digits = Digits(exponent, IsAsciiDigit);
      if (digits > exponent) end = digits;
    }
    return end == whole ? pos_ : end;
  }

  size_t IntegerEnd() const {
    if (!IsAsciiDigit(source_[pos_])) return pos_;
    if (source_[pos_] == '0') {
      const char prefix =
          pos_ + 1 < source_.size() ? static_cast<char>(source_[pos_ + 1] | 0x20) : '\0';
      const auto is_digit = [prefix](char c) {
        if (prefix == 'b') return c == '0' || c == '1';
        if (prefix == 'o') return c >= '0' && c <= '7';
        return IsAsciiDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      };
      if (prefix == 'b' || prefix == 'o' || prefix == 'x') {
        const size_t begin =
            pos_ + 2 + (pos_ + 2 < source_.size() && source_[pos_ + 2] == '_' ? 1 : 0);
        const size_t end = Digits(begin, is_digit);
        if (end > begin) return end;
      }
      return Digits(pos_, [](char c) { return c == '0'; });
    }
    return Digits(pos_, IsAsciiDigit);
  }

  bool LexNumber() {
    const size_t float_end = FloatEnd();
    const size_t end = float_end > pos_ ? float_end : IntegerEnd();
    if (end == pos_) return false;
    std::string text = source_.substr(pos_, end - pos_);
    std::erase(text, '_');
    Push(float_end > pos_ ? TokenType::kFloat : TokenType::kInteger, std::move(text), line_);
    MoveTo(end);
    return true;
  }

  bool LexString(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;
    std::string error;
    auto value = UnescapeLiteral(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1), error);
    if (!value) {
      Fail(error);
      return true;
    }
    Push(TokenType::kString, std::move(*value), line_);
    MoveTo(end + 1);
    return true;
  }

  void LexOperator(std::string_view op) {
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') {
      brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) return Fail(std::string("unexpected '") + c + "'");
      const char expected = brackets_.back();
      brackets_.pop_back();
      if (expected != c)
        return Fail(std::string("unexpected '") + c + "', expected '" + expected + "'");
    }
    Push(TokenType::kOperator, std::string(op), line_);
    MoveTo(pos_ + op.size());
  }

  const std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text behind the last tag begins a line
  bool failed_ = false;
  std::string brackets_;  // closing ones that are due
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data / text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kEnd:
      return "end of template";
    case TokenType::kInteger:
      return "integer";
    case TokenType::kFloat:
      return "float";
    case TokenType::kString:
      return "string";
    default:
      return token.text;
  }
}

}  // namespace moewe::text::jinja
