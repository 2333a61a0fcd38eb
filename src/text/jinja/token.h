// Tokens of a template.
#ifndef MOEWE_TEXT_JINJA_TOKEN_H_
#define MOEWE_TEXT_JINJA_TOKEN_H_

#include <string>
#include <string_view>
#include <vector>

namespace moewe::text::jinja {

enum class TokenType {
  kData,           // text outside of tags, whitespace control applied
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kInteger,  // text: the literal without underscores
  kFloat,    // likewise
  kString,   // text: the value, escapes resolved
  kOperator,
  kEnd,
  kError,  // text: the message of a TemplateSyntaxError, raised once the parser gets here
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string text;
  int line = 1;

  bool Is(TokenType t) const { return type == t; }
  bool IsName(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool IsOperator(std::string_view op) const { return type == TokenType::kOperator && text == op; }
};

// Splits a template as Jinja does with trim_blocks and lstrip_blocks. Never throws for a bad
// template: the list ends with kEnd or kError, because an earlier mistake of grammar comes first.
std::vector<Token> Tokenize(std::string_view source);

// How messages call a token: "end of print statement", "name", "(".
std::string Describe(const Token& token);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_TOKEN_H_
