// Recursive descent over the tokens. Split in three: parser.cc has the statements, parser_expr.cc
// the expressions, parser_postfix.cc what follows one.
#ifndef MOEWE_TEXT_JINJA_PARSER_H_
#define MOEWE_TEXT_JINJA_PARSER_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token.h"

namespace moewe::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens);
  Body ParseAll();

 private:
  using Names = std::vector<std::string_view>;

  // The stream.
  const Token& Current() const { return tokens_[position_]; }
  const Token& Look() const;
  Token Next();
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  Token Expect(TokenType type, const char* what);
  void ExpectName(std::string_view name);
  void ExpectOperator(std::string_view op);
  bool CurrentIsAnyName(const Names& names) const;
  [[noreturn]] void Fail(std::string message, int line) const;
  [[noreturn]] void Fail(std::string message) const { Fail(std::move(message), Current().line); }
  [[noreturn]] void FailExpected(const std::string& what) const;
  [[noreturn]] void FailUnknownTag(const std::string& tag, int line) const;
  [[noreturn]] void FailEndOfTemplate() const;
  std::string ExpectedTags() const;

  // Statements.
  Body ParseBody(const Names& end_tags);
  Body ParseStatements(const Names& end_tags, bool drop_end_tag);
  StmtPtr ParseStatement();
  StmtPtr ParseFor();
  StmtPtr ParseIf();
  StmtPtr ParseSet();
  StmtPtr ParseWith();
  StmtPtr ParseMacro();
  StmtPtr ParseCallBlock();
  StmtPtr ParseFilterBlock();
  StmtPtr ParseBlock();
  StmtPtr ParsePrint();
  StmtPtr ParseAutoescape();
  StmtPtr ParseLoad();
  void ParseSignature(MacroDefinition& macro);

  // Expressions.
  ExprPtr ParseExpression(bool with_conditional = true);
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter = true);
  ExprPtr ParsePrimary(bool with_namespace = false);
  ExprPtr ParseNumber(const Token& token);
  ExprPtr ParseListLiteral();
  ExprPtr ParseDictLiteral();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilterOrTest(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseSubscribed(ExprPtr node);
  ExprPtr ParseCall(ExprPtr callee);
  void ParseCallArguments(Expr& call);
  // Filters from `|` on; `inline_start`: the name comes first. `node` is null in blocks.
  ExprPtr ParseFilter(ExprPtr node, bool inline_start);
  ExprPtr ParseTest(ExprPtr node);
  struct TupleRules {
    bool simplified = false;  // parts are primaries
    bool with_conditional = true;
    bool parenthesized = false;
    bool with_namespace = false;
    std::string_view end_name = {};  // a name that ends the tuple
  };
  ExprPtr ParseTuple(const TupleRules& rules);
  ExprPtr ParseTarget(bool with_namespace, std::string_view end_name);
  std::string ParseTargetName();

  ExprPtr Make(ExprKind kind, int line) const;
  // Adds an operand and keeps `depth` right; the limit on it is here.
  void Adopt(Expr& parent, ExprPtr child) const;
  void CheckDepth(Expr& parent, const ExprPtr& child) const;
  static StmtPtr MakeStmt(StmtKind kind, int line);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  std::vector<std::string> tags_;  // open ones, outermost first
  std::vector<Names> end_tags_;    // what each of them waits for
};

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_PARSER_H_
