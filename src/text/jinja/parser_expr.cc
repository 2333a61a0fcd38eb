#include <algorithm>
#include <charconv>
#include <limits>

#include "text/jinja/budget.h"
#include "text/jinja/parser.h"

namespace moewe::text::jinja {
namespace {

// Of an expression's tree. Jinja itself gives up (RecursionError) at some 75 nested parentheses and
// a few hundred chained operators.
constexpr int kMaxExpressionDepth = 300;

// Whether Jinja computes it while compiling.
bool IsConstant(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return true;
    case ExprKind::kNegate:
    case ExprKind::kPositive:
    case ExprKind::kBinary:
      return std::all_of(expr.operands.begin(), expr.operands.end(),
                         [](const ExprPtr& operand) { return IsConstant(*operand); });
    default:
      return false;
  }
}

}  // namespace

ExprPtr Parser::Make(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void Parser::CheckDepth(Expr& parent, const ExprPtr& child) const {
  if (child == nullptr) return;
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > kMaxExpressionDepth) {
    Raise("RecursionError", "the expression is nested too deeply", parent.line);
  }
}

void Parser::Adopt(Expr& parent, ExprPtr child) const {
  CheckDepth(parent, child);
  parent.operands.push_back(std::move(child));
}

ExprPtr Parser::ParseExpression(bool with_conditional) {
  // A level of parentheses costs a dozen C++ calls.
  const DepthGuard d1, d2, d3, d4, d5, d6, d7, d8;
  return with_conditional ? ParseConditional() : ParseOr();
}

ExprPtr Parser::ParseConditional() {
  const DepthGuard depth;
  ExprPtr value = ParseOr();
  while (Current().IsName("if")) {
    auto node = Make(ExprKind::kConditional, Next().line);
    Adopt(*node, std::move(value));
    Adopt(*node, ParseOr());
    Adopt(*node, SkipName("else") ? ParseConditional() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExprPtr Parser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (Current().IsName("or")) {
    auto node = Make(ExprKind::kOr, Next().line);
    Adopt(*node, std::move(left));
    Adopt(*node, ParseAnd());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (Current().IsName("and")) {
    auto node = Make(ExprKind::kAnd, Next().line);
    Adopt(*node, std::move(left));
    Adopt(*node, ParseNot());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::ParseNot() {
  if (!Current().IsName("not")) return ParseCompare();
  const DepthGuard depth;
  auto node = Make(ExprKind::kNot, Next().line);
  Adopt(*node, ParseNot());
  return node;
}

ExprPtr Parser::ParseCompare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  const int line = Current().line;
  ExprPtr first = ParseSum();
  ExprPtr node;
  while (true) {
    const CompareOp* op = nullptr;
    static constexpr CompareOp kIn = CompareOp::kIn;
    static constexpr CompareOp kNotIn = CompareOp::kNotIn;
    for (const auto& [text, candidate] : kOps) {
      if (Current().IsOperator(text)) op = &candidate;
    }
    if (Current().IsName("in")) op = &kIn;
    if (Current().IsName("not") && Look().IsName("in")) {
      op = &kNotIn;
      Next();
    }
    if (op == nullptr) return node != nullptr ? std::move(node) : std::move(first);
    Next();
    if (node == nullptr) {
      node = Make(ExprKind::kCompare, line);
      Adopt(*node, std::move(first));
    }
    node->compare_ops.push_back(*op);
    Adopt(*node, ParseSum());
  }
}

ExprPtr Parser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (Current().IsOperator("+") || Current().IsOperator("-")) {
    const Token op = Next();
    auto node = Make(ExprKind::kBinary, op.line);
    node->op = op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    Adopt(*node, std::move(left));
    Adopt(*node, ParseConcat());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!Current().IsOperator("~")) return first;
  auto node = Make(ExprKind::kConcat, Current().line);
  Adopt(*node, std::move(first));
  while (SkipOperator("~")) Adopt(*node, ParseProduct());
  return node;
}

ExprPtr Parser::ParseProduct() {
  ExprPtr left = ParsePower();
  while (Current().IsOperator("*") || Current().IsOperator("/") || Current().IsOperator("//") ||
         Current().IsOperator("%")) {
    const Token op = Next();
    auto node = Make(ExprKind::kBinary, op.line);
    node->op = op.text == "*"    ? BinaryOp::kMultiply
               : op.text == "/"  ? BinaryOp::kDivide
               : op.text == "//" ? BinaryOp::kFloorDivide
                                 : BinaryOp::kModulo;
    Adopt(*node, std::move(left));
    Adopt(*node, ParsePower());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::ParsePower() {
  ExprPtr left = ParseUnary();
  while (Current().IsOperator("**")) {
    auto node = Make(ExprKind::kBinary, Next().line);
    node->op = BinaryOp::kPower;
    ExprPtr right = ParseUnary();
    // Jinja hands a negative literal over to Python without parentheses unless all is constant, and
    // there the sign comes last: -2 ** x is -(2 ** x).
    ExprPtr sign;
    if (left->kind == ExprKind::kNegate && left->operands[0]->kind == ExprKind::kConst &&
        left->operands[0]->constant.is_number() && !IsConstant(*right)) {
      sign = std::move(left);
      left = std::move(sign->operands[0]);
      sign->operands.clear();
    }
    Adopt(*node, std::move(left));
    Adopt(*node, std::move(right));
    left = std::move(node);
    if (sign != nullptr) {
      Adopt(*sign, std::move(left));
      left = std::move(sign);
    }
  }
  return left;
}

ExprPtr Parser::ParseUnary(bool with_filter) {
  const DepthGuard depth;
  ExprPtr node;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const Token sign = Next();
    node = Make(sign.text == "-" ? ExprKind::kNegate : ExprKind::kPositive, sign.line);
    Adopt(*node, ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterOrTest(std::move(node)) : std::move(node);
}

ExprPtr Parser::ParseNumber(const Token& token) {
  auto node = Make(ExprKind::kConst, token.line);
  if (token.Is(TokenType::kFloat)) {
    double value = 0;
    const auto result =
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (result.ec == std::errc::result_out_of_range) {
      // Too large becomes infinity, too small zero: the exponent's sign tells.
      value =
          token.text.find("e-") != std::string::npos || token.text.find("E-") != std::string::npos
              ? 0.0
              : std::numeric_limits<double>::infinity();
    }
    node->constant = Value::Float(value);
    return node;
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  node->constant = Value::Int(BigInt::FromDigits(digits, base));
  return node;
}

ExprPtr Parser::ParsePrimary(bool with_namespace) {
  const Token token = Current();
  if (token.Is(TokenType::kName)) {
    Next();
    if (token.text == "true" || token.text == "false" || token.text == "True" ||
        token.text == "False") {
      auto node = Make(ExprKind::kConst, token.line);
      node->constant = Value::Bool(token.text == "true" || token.text == "True");
      return node;
    }
    if (token.text == "none" || token.text == "None") return Make(ExprKind::kConst, token.line);
    auto node = Make(ExprKind::kName, token.line);
    node->name = token.text;
    if (with_namespace && SkipOperator(".")) {
      node->kind = ExprKind::kNamespaceRef;
      node->attribute = Expect(TokenType::kName, "name").text;
    }
    return node;
  }
  if (token.Is(TokenType::kString)) {
    std::string text;
    while (Current().Is(TokenType::kString)) text += Next().text;
    auto node = Make(ExprKind::kConst, token.line);
    node->constant = Value::String(text);
    return node;
  }
  if (token.Is(TokenType::kInteger) || token.Is(TokenType::kFloat)) {
    Next();
    return ParseNumber(token);
  }
  if (token.IsOperator("(")) {
    Next();
    ExprPtr node = ParseTuple({.parenthesized = true});
    ExpectOperator(")");
    return node;
  }
  if (token.IsOperator("[")) return ParseListLiteral();
  if (token.IsOperator("{")) return ParseDictLiteral();
  Fail("unexpected '" + Describe(token) + "'", token.line);
}

ExprPtr Parser::ParseListLiteral() {
  auto node = Make(ExprKind::kList, Next().line);
  while (!Current().IsOperator("]")) {
    if (!node->operands.empty()) ExpectOperator(",");
    if (Current().IsOperator("]")) break;
    Adopt(*node, ParseExpression());
  }
  ExpectOperator("]");
  return node;
}

ExprPtr Parser::ParseDictLiteral() {
  auto node = Make(ExprKind::kDict, Next().line);
  while (!Current().IsOperator("}")) {
    if (!node->operands.empty()) ExpectOperator(",");
    if (Current().IsOperator("}")) break;
    Adopt(*node, ParseExpression());
    ExpectOperator(":");
    Adopt(*node, ParseExpression());
  }
  ExpectOperator("}");
  return node;
}

ExprPtr Parser::ParseTuple(const TupleRules& rules) {
  const int line = Current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    const bool at_end = Current().Is(TokenType::kVariableEnd) ||
                        Current().Is(TokenType::kBlockEnd) || Current().IsOperator(")") ||
                        (!rules.end_name.empty() && Current().IsName(rules.end_name));
    if (at_end) break;
    items.push_back(rules.simplified ? ParsePrimary(rules.with_namespace)
                                     : ParseExpression(rules.with_conditional));
    if (!Current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parenthesized) Fail("Expected an expression, got '" + Describe(Current()) + "'");
  }
  auto node = Make(ExprKind::kTuple, line);
  for (ExprPtr& item : items) Adopt(*node, std::move(item));
  return node;
}

namespace {

const char* UnassignableKind(const Expr& target) {
  switch (target.kind) {
    case ExprKind::kName:
    case ExprKind::kNamespaceRef:
      return nullptr;
    case ExprKind::kTuple:
      for (const ExprPtr& item : target.operands) {
        if (UnassignableKind(*item) != nullptr) return "tuple";
      }
      return nullptr;
    case ExprKind::kConst:
      return "const";
    case ExprKind::kList:
      return "list";
    case ExprKind::kDict:
      return "dict";
    default:
      return "expression";
  }
}

}  // namespace

ExprPtr Parser::ParseTarget(bool with_namespace, std::string_view end_name) {
  ExprPtr target =
      ParseTuple({.simplified = true, .with_namespace = with_namespace, .end_name = end_name});
  if (const char* kind = UnassignableKind(*target)) {
    Fail(std::string("can't assign to '") + kind + "'", target->line);
  }
  return target;
}

std::string Parser::ParseTargetName() {
  const Token token = Expect(TokenType::kName, "name");
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (token.text == reserved) Fail("can't assign to 'name'", token.line);
  }
  return token.text;
}

}  // namespace moewe::text::jinja
