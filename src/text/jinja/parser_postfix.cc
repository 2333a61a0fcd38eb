// What follows an expression: attributes, subscripts and slices, calls, filters and tests.
#include <utility>

#include "text/jinja/parser.h"

namespace moewe::text::jinja {

ExprPtr Parser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (Current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::ParseFilterOrTest(ExprPtr node) {
  while (true) {
    if (Current().IsOperator("|")) {
      node = ParseFilter(std::move(node), false);
    } else if (Current().IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (Current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::ParseSubscript(ExprPtr object) {
  const Token token = Next();
  if (token.IsOperator("[")) return ParseSubscribed(std::move(object));
  const Token name = Next();
  if (name.Is(TokenType::kName)) {
    auto node = Make(ExprKind::kAttribute, token.line);
    node->name = name.text;
    Adopt(*node, std::move(object));
    return node;
  }
  if (!name.Is(TokenType::kInteger)) Fail("expected name or number", name.line);
  auto node = Make(ExprKind::kItem, token.line);
  Adopt(*node, std::move(object));
  Adopt(*node, ParseNumber(name));
  return node;
}

// Behind `[`: an index, a slice, or several (which make a tuple, good for nothing but an undefined
// element).
ExprPtr Parser::ParseSubscribed(ExprPtr object) {
  const int line = Current().line;
  std::vector<ExprPtr> parts;
  bool is_slice = false;
  std::vector<ExprPtr> indices;
  const auto at_end = [&] { return Current().IsOperator("]") || Current().IsOperator(","); };
  while (!Current().IsOperator("]")) {
    if (!indices.empty()) ExpectOperator(",");
    parts.clear();
    is_slice = false;
    if (!Current().IsOperator(":")) parts.push_back(ParseExpression());
    if (parts.empty() || Current().IsOperator(":")) {
      is_slice = true;
      if (parts.empty()) parts.push_back(nullptr);
      while (parts.size() < 3 && SkipOperator(":")) {
        parts.push_back(at_end() || Current().IsOperator(":") ? nullptr : ParseExpression());
      }
      parts.resize(3);
    }
    indices.push_back(is_slice ? Make(ExprKind::kConst, line) : std::move(parts[0]));
    if (!Current().IsOperator(",")) break;
  }
  ExpectOperator("]");
  auto node = Make(ExprKind::kItem, line);
  Adopt(*node, std::move(object));
  if (indices.size() == 1 && is_slice) {
    node->kind = ExprKind::kSlice;
    for (ExprPtr& part : parts) Adopt(*node, std::move(part));
  } else if (indices.size() == 1) {
    Adopt(*node, std::move(indices[0]));
  } else {
    auto tuple = Make(ExprKind::kTuple, line);
    for (ExprPtr& index : indices) Adopt(*tuple, std::move(index));
    Adopt(*node, std::move(tuple));
  }
  return node;
}

ExprPtr Parser::ParseCall(ExprPtr callee) {
  auto node = Make(ExprKind::kCall, Current().line);
  Adopt(*node, std::move(callee));
  ParseCallArguments(*node);
  return node;
}

void Parser::ParseCallArguments(Expr& call) {
  const int line = Current().line;
  ExpectOperator("(");
  bool first = true;
  const auto ensure = [&](bool valid) {
    if (!valid) Fail("invalid syntax for function call expression", line);
  };
  while (!Current().IsOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (Current().IsOperator(")")) break;
    }
    first = false;
    if (SkipOperator("*")) {
      ensure(call.star_args == nullptr && call.star_kwargs == nullptr);
      call.star_args = ParseExpression();
      CheckDepth(call, call.star_args);
    } else if (SkipOperator("**")) {
      ensure(call.star_kwargs == nullptr);
      call.star_kwargs = ParseExpression();
      CheckDepth(call, call.star_kwargs);
    } else if (Current().Is(TokenType::kName) && Look().IsOperator("=")) {
      ensure(call.star_kwargs == nullptr);
      const std::string name = Next().text;
      Next();
      ExprPtr value = ParseExpression();
      CheckDepth(call, value);
      call.keywords.emplace_back(name, std::move(value));
    } else {
      ensure(call.star_args == nullptr && call.star_kwargs == nullptr && call.keywords.empty());
      Adopt(call, ParseExpression());
    }
  }
  ExpectOperator(")");
}

ExprPtr Parser::ParseFilter(ExprPtr node, bool inline_start) {
  while (inline_start || Current().IsOperator("|")) {
    if (!inline_start) Next();
    inline_start = false;
    const Token name = Expect(TokenType::kName, "name");
    auto filter = Make(ExprKind::kFilter, name.line);
    filter->name = name.text;
    while (SkipOperator(".")) filter->name += "." + Expect(TokenType::kName, "name").text;
    Adopt(*filter, std::move(node));
    if (Current().IsOperator("(")) ParseCallArguments(*filter);
    node = std::move(filter);
  }
  return node;
}

ExprPtr Parser::ParseTest(ExprPtr subject) {
  const int line = Next().line;
  const bool negated = SkipName("not");
  auto test = Make(ExprKind::kTest, line);
  test->name = Expect(TokenType::kName, "name").text;
  while (SkipOperator(".")) test->name += "." + Expect(TokenType::kName, "name").text;
  Adopt(*test, std::move(subject));
  const Token& next = Current();
  const bool literal = next.Is(TokenType::kName) || next.Is(TokenType::kString) ||
                       next.Is(TokenType::kInteger) || next.Is(TokenType::kFloat) ||
                       next.IsOperator("[") || next.IsOperator("{");
  if (next.IsOperator("(")) {
    ParseCallArguments(*test);
  } else if (literal && !next.IsName("else") && !next.IsName("or") && !next.IsName("and")) {
    if (next.IsName("is")) Fail("You cannot chain multiple tests with is");
    Adopt(*test, ParsePostfix(ParsePrimary()));
  }
  if (!negated) return test;
  auto node = Make(ExprKind::kNot, line);
  Adopt(*node, std::move(test));
  return node;
}

}  // namespace moewe::text::jinja
