#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/budget.h"

namespace moewe::text::jinja {

Parser::Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

const Token& Parser::Look() const {
  const Token& next = tokens_[std::min(position_ + 1, tokens_.size() - 1)];
  if (next.Is(TokenType::kError)) Raise("TemplateSyntaxError", next.text, next.line);
  return next;
}

Token Parser::Next() {
  Token token = Current();
  if (position_ + 1 < tokens_.size()) ++position_;
  if (Current().Is(TokenType::kError)) Raise("TemplateSyntaxError", Current().text, Current().line);
  return token;
}

bool Parser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Next();
  return true;
}

bool Parser::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Next();
  return true;
}

Token Parser::Expect(TokenType type, const char* what) {
  if (!Current().Is(type)) FailExpected(what);
  return Next();
}
void Parser::ExpectName(std::string_view name) {
  if (!SkipName(name)) FailExpected(std::string(name));
}
void Parser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) FailExpected(std::string(op));
}

bool Parser::CurrentIsAnyName(const Names& names) const {
  return Current().Is(TokenType::kName) &&
         std::find(names.begin(), names.end(), Current().text) != names.end();
}

void Parser::Fail(std::string message, int line) const {
  Raise("TemplateSyntaxError", std::move(message), line);
}

void Parser::FailExpected(const std::string& what) const {
  if (Current().Is(TokenType::kEnd)) Fail("unexpected end of template, expected '" + what + "'.");
  Fail("expected token '" + what + "', got '" + Describe(Current()) + "'");
}

std::string Parser::ExpectedTags() const {
  std::string text;
  if (end_tags_.empty()) return text;
  text = " Jinja was looking for the following tags: ";
  for (size_t i = 0; i < end_tags_.back().size(); ++i) {
    text += (i == 0 ? "'" : " or '") + std::string(end_tags_.back()[i]) + "'";
  }
  text += ".";
  if (!tags_.empty())
    text += " The innermost block that needs to be closed is '" + tags_.back() + "'.";
  return text;
}

void Parser::FailUnknownTag(const std::string& tag, int line) const {
  Fail("Encountered unknown tag '" + tag + "'." + ExpectedTags(), line);
}

void Parser::FailEndOfTemplate() const { Fail("Unexpected end of template." + ExpectedTags()); }

StmtPtr Parser::MakeStmt(StmtKind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

Body Parser::ParseAll() {
  if (Current().Is(TokenType::kError)) Raise("TemplateSyntaxError", Current().text, Current().line);
  return ParseBody({});
}

Body Parser::ParseBody(const Names& end_tags) {
  Body body;
  StmtPtr output;
  const auto flush = [&] {
    if (output != nullptr) body.push_back(std::move(output));
  };
  const auto add = [&](ExprPtr expr) {
    if (output == nullptr) output = MakeStmt(StmtKind::kOutput, expr->line);
    output->exprs.push_back(std::move(expr));
  };
  if (!end_tags.empty()) end_tags_.push_back(end_tags);
  while (!Current().Is(TokenType::kEnd)) {
    if (Current().Is(TokenType::kData)) {
      const Token data = Next();
      auto text = Make(ExprKind::kConst, data.line);
      Str plain(data.text);
      plain.safe = true;  // the template's own text is never escaped
      text->constant = Value::String(std::move(plain));
      add(std::move(text));
    } else if (Current().Is(TokenType::kVariableBegin)) {
      Next();
      add(ParseTuple({}));
      Expect(TokenType::kVariableEnd, "end of print statement");
    } else {
      flush();
      Next();
      if (!end_tags.empty() && CurrentIsAnyName(end_tags)) {
        end_tags_.pop_back();
        return body;
      }
      body.push_back(ParseStatement());
      Expect(TokenType::kBlockEnd, "end of statement block");
    }
  }
  flush();
  if (!end_tags.empty()) FailEndOfTemplate();
  return body;
}

Body Parser::ParseStatements(const Names& end_tags, bool drop_end_tag) {
  SkipOperator(":");
  Expect(TokenType::kBlockEnd, "end of statement block");
  Body body = ParseBody(end_tags);
  if (drop_end_tag) Next();
  return body;
}

StmtPtr Parser::ParseStatement() {
  const DepthGuard depth;
  const Token token = Current();
  if (!token.Is(TokenType::kName)) Fail("tag name expected", token.line);
  // Indentation and blocks nested deeper than this are refused by Python's compiler as well.
  if (tags_.size() >= 90) Raise("RecursionError", "tags are nested too deeply", token.line);
  struct Entry {
    const char* tag;
    StmtPtr (Parser::*parse)();
  };
  static constexpr Entry kEntries[] = {
      {"for", &Parser::ParseFor},
      {"if", &Parser::ParseIf},
      {"set", &Parser::ParseSet},
      {"with", &Parser::ParseWith},
      {"macro", &Parser::ParseMacro},
      {"call", &Parser::ParseCallBlock},
      {"filter", &Parser::ParseFilterBlock},
      {"block", &Parser::ParseBlock},
      {"print", &Parser::ParsePrint},
      {"autoescape", &Parser::ParseAutoescape},
      {"include", &Parser::ParseLoad},
      {"import", &Parser::ParseLoad},
      {"from", &Parser::ParseLoad},
      {"extends", &Parser::ParseLoad},
  };
  for (const Entry& entry : kEntries) {
    if (token.text != entry.tag) continue;
    tags_.push_back(token.text);
    StmtPtr stmt = (this->*entry.parse)();
    tags_.pop_back();
    return stmt;
  }
  if (token.text == "break" || token.text == "continue") {
    Next();
    return MakeStmt(token.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, token.line);
  }
  if (token.text == "generation") {
    Next();
    tags_.push_back(token.text);
    auto stmt = MakeStmt(StmtKind::kGeneration, token.line);
    stmt->body = ParseStatements({"endgeneration"}, true);
    tags_.pop_back();
    return stmt;
  }
  FailUnknownTag(token.text, token.line);
}

StmtPtr Parser::ParseFor() {
  auto stmt = MakeStmt(StmtKind::kFor, Next().line);
  stmt->targets.push_back(ParseTarget(false, "in"));
  ExpectName("in");
  stmt->exprs.push_back(ParseTuple({.with_conditional = false, .end_name = "recursive"}));
  stmt->exprs.push_back(SkipName("if") ? ParseExpression() : nullptr);
  stmt->recursive = SkipName("recursive");
  stmt->body = ParseStatements({"endfor", "else"}, false);
  if (Next().text == "else") stmt->alternative = ParseStatements({"endfor"}, true);
  return stmt;
}

StmtPtr Parser::ParseIf() {
  auto stmt = MakeStmt(StmtKind::kIf, Current().line);
  while (true) {
    Next();  // if, elif
    IfBranch branch;
    branch.condition = ParseTuple({.with_conditional = false});
    branch.body = ParseStatements({"elif", "else", "endif"}, false);
    stmt->branches.push_back(std::move(branch));
    if (Current().text == "elif") continue;
    if (Next().text == "else") {
      IfBranch otherwise;
      otherwise.body = ParseStatements({"endif"}, true);
      stmt->branches.push_back(std::move(otherwise));
    }
    return stmt;
  }
}

StmtPtr Parser::ParseSet() {
  const int line = Next().line;
  ExprPtr target = ParseTarget(true, {});
  auto stmt = MakeStmt(StmtKind::kSet, line);
  stmt->targets.push_back(std::move(target));
  if (SkipOperator("=")) {
    stmt->exprs.push_back(ParseTuple({}));
    return stmt;
  }
  stmt->kind = StmtKind::kSetBlock;
  stmt->exprs.push_back(ParseFilter(nullptr, false));
  stmt->body = ParseStatements({"endset"}, true);
  return stmt;
}

StmtPtr Parser::ParseWith() {
  auto stmt = MakeStmt(StmtKind::kWith, Next().line);
  while (!Current().Is(TokenType::kBlockEnd)) {
    if (!stmt->targets.empty()) ExpectOperator(",");
    stmt->targets.push_back(ParseTarget(false, {}));
    ExpectOperator("=");
    stmt->exprs.push_back(ParseExpression());
  }
  stmt->body = ParseStatements({"endwith"}, true);
  return stmt;
}

void Parser::ParseSignature(MacroDefinition& macro) {
  ExpectOperator("(");
  while (!Current().IsOperator(")")) {
    if (!macro.parameters.empty()) ExpectOperator(",");
    macro.parameters.push_back(ParseTargetName());
    if (SkipOperator("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      Fail("non-default argument follows default argument");
    }
  }
  ExpectOperator(")");
}

StmtPtr Parser::ParseMacro() {
  auto stmt = MakeStmt(StmtKind::kMacro, Next().line);
  stmt->macro = std::make_unique<MacroDefinition>();
  stmt->macro->line = stmt->line;
  stmt->macro->name = ParseTargetName();
  stmt->name = stmt->macro->name;
  ParseSignature(*stmt->macro);
  stmt->macro->body = ParseStatements({"endmacro"}, true);
  return stmt;
}

StmtPtr Parser::ParseCallBlock() {
  auto stmt = MakeStmt(StmtKind::kCallBlock, Next().line);
  stmt->macro = std::make_unique<MacroDefinition>();
  stmt->macro->line = stmt->line;
  stmt->macro->name = "caller";
  if (Current().IsOperator("(")) ParseSignature(*stmt->macro);
  stmt->exprs.push_back(ParseExpression());
  if (stmt->exprs[0]->kind != ExprKind::kCall) Fail("expected call", stmt->line);
  stmt->macro->body = ParseStatements({"endcall"}, true);
  return stmt;
}

StmtPtr Parser::ParseFilterBlock() {
  auto stmt = MakeStmt(StmtKind::kFilterBlock, Next().line);
  stmt->exprs.push_back(ParseFilter(nullptr, true));
  stmt->body = ParseStatements({"endfilter"}, true);
  return stmt;
}

StmtPtr Parser::ParseBlock() {
  auto stmt = MakeStmt(StmtKind::kBlock, Next().line);
  stmt->name = Expect(TokenType::kName, "name").text;
  SkipName("scoped");
  SkipName("required");
  if (Current().IsOperator("-")) {
    Fail(
        "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use "
        "an "
        "underscore instead.");
  }
  stmt->body = ParseStatements({"endblock"}, true);
  SkipName(stmt->name);
  return stmt;
}

StmtPtr Parser::ParsePrint() {
  auto stmt = MakeStmt(StmtKind::kOutput, Next().line);
  while (!Current().Is(TokenType::kBlockEnd)) {
    if (!stmt->exprs.empty()) ExpectOperator(",");
    stmt->exprs.push_back(ParseExpression());
  }
  return stmt;
}

StmtPtr Parser::ParseAutoescape() {
  auto stmt = MakeStmt(StmtKind::kAutoescape, Next().line);
  stmt->exprs.push_back(ParseExpression());
  stmt->body = ParseStatements({"endautoescape"}, true);
  return stmt;
}

StmtPtr Parser::ParseLoad() {
  const Token tag = Next();
  auto stmt = MakeStmt(StmtKind::kLoad, tag.line);
  stmt->exprs.push_back(ParseExpression());
  if (tag.text == "from") ExpectName("import");
  if (tag.text == "import") ExpectName("as");
  if (tag.text == "import" || tag.text == "from") {
    // The names do not matter: there is nothing to import from.
    do {
      ParseTargetName();
      if (SkipName("as")) ParseTargetName();
      if (!SkipOperator(",")) break;
    } while (Current().Is(TokenType::kName));
  } else if (tag.text == "include" && Current().IsName("ignore") && Look().IsName("missing")) {
    Next();
    Next();
  }
  if ((Current().IsName("with") || Current().IsName("without")) && Look().IsName("context")) {
    Next();
    Next();
  }
  return stmt;
}

Template ParseTemplate(std::string_view source) {
  Template tree;
  tree.body = Parser(Tokenize(source)).ParseAll();
  return tree;
}

Template CompileTemplate(std::string_view source) {
  Template tree = ParseTemplate(source);
  ResolveTemplate(tree);
  return tree;
}

}  // namespace moewe::text::jinja
