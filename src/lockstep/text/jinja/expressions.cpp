#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/parser.h"
#include "lockstep/text/jinja/strings.h"

namespace lockstep::jinja {

using Kind = Expr::Kind;

ExprPtr ExprParser::make(Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->place = in_.peek().place;
  return expr;
}

// Everything that walks a tree recurses: its height is bounded where it grows.
void ExprParser::adopt(Expr& parent, ExprPtr child) {
  if (child != nullptr) {
    parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > kMaxTree) too_deep();
  }
  parent.items.push_back(std::move(child));
}

void ExprParser::too_deep() const {
  syntax_error(in_.where(), in_.peek().place, fmt::format("an expression of more than {} levels", kMaxTree));
}

/// One level of the parser's own recursion.
class ExprParser::Level {
 public:
  explicit Level(ExprParser& parser) : parser_(parser) {
    if (++parser_.levels_ > kMaxTree) parser_.too_deep();
  }
  ~Level() { --parser_.levels_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  ExprParser& parser_;
};

ExprPtr ExprParser::binary(std::string op, ExprPtr left, ExprPtr right) {
  auto expr = make(Kind::kBinary);
  expr->place = left->place;
  expr->name = std::move(op);
  adopt(*expr, std::move(left));
  adopt(*expr, std::move(right));
  return expr;
}

ExprPtr ExprParser::expression(bool with_condition) { return with_condition ? condition() : either(); }

ExprPtr ExprParser::condition() {
  const Level level(*this);
  ExprPtr value = either();
  while (in_.skip_name("if")) {
    auto expr = make(Kind::kCondition);
    adopt(*expr, either());
    adopt(*expr, std::move(value));
    adopt(*expr, in_.skip_name("else") ? condition() : nullptr);
    value = std::move(expr);
  }
  return value;
}

ExprPtr ExprParser::either() {
  ExprPtr left = both();
  while (in_.skip_name("or")) left = binary("or", std::move(left), both());
  return left;
}

ExprPtr ExprParser::both() {
  const Level level(*this);
  ExprPtr left = negation();
  while (in_.skip_name("and")) left = binary("and", std::move(left), negation());
  return left;
}

ExprPtr ExprParser::negation() {
  if (!in_.at_name("not")) return comparison();
  const Level level(*this);
  auto expr = make(Kind::kUnary);
  in_.next();
  expr->name = "not";
  adopt(*expr, negation());
  return expr;
}

ExprPtr ExprParser::comparison() {
  static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<=", ">=", "<", ">"};
  auto expr = make(Kind::kCompare);
  adopt(*expr, sum());
  while (true) {
    std::string op;
    for (const std::string_view candidate : kOperators) {
      if (op.empty() && in_.skip_operator(candidate)) op = candidate;
    }
    if (op.empty() && in_.skip_name("in")) op = "in";
    if (op.empty() && in_.at_name("not") && in_.peek(1).kind == Token::Kind::kName && in_.peek(1).text == "in") {
      in_.next();
      in_.next();
      op = "not in";
    }
    if (op.empty()) break;
    expr->names.push_back(std::move(op));
    adopt(*expr, sum());
  }
  return expr->names.empty() ? std::move(expr->items[0]) : std::move(expr);
}

ExprPtr ExprParser::sum() {
  ExprPtr left = concatenation();
  while (in_.at_operator("+") || in_.at_operator("-")) {
    std::string op = in_.next().text;
    left = binary(std::move(op), std::move(left), concatenation());
  }
  return left;
}

ExprPtr ExprParser::concatenation() {
  ExprPtr left = product();
  while (in_.skip_operator("~")) left = binary("~", std::move(left), product());
  return left;
}

ExprPtr ExprParser::product() {
  ExprPtr left = power();
  while (in_.at_operator("*") || in_.at_operator("/") || in_.at_operator("//") || in_.at_operator("%")) {
    std::string op = in_.next().text;
    left = binary(std::move(op), std::move(left), power());
  }
  return left;
}

ExprPtr ExprParser::power() {
  ExprPtr left = unary();
  while (in_.skip_operator("**")) left = binary("**", std::move(left), unary());
  return left;
}

ExprPtr ExprParser::unary(bool with_filter) {
  const Level level(*this);
  ExprPtr expr;
  if (in_.at_operator("-") || in_.at_operator("+")) {
    expr = make(Kind::kUnary);
    expr->name = in_.next().text;
    adopt(*expr, unary(false));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filter ? postfix_and_filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExprParser::primary() {
  if (in_.at_operator("(")) return parenthesis();
  if (in_.at_operator("[")) return list_literal();
  if (in_.at_operator("{")) return dict_literal();
  if (in_.at(Token::Kind::kName)) return name_or_constant();
  auto expr = make(Kind::kConstant);
  if (in_.at(Token::Kind::kString)) {
    std::string text;
    while (in_.at(Token::Kind::kString)) text += in_.next().text;  // neighbours are one string
    expr->constant = std::move(text);
  } else if (in_.at(Token::Kind::kInteger)) {
    const auto number = parse_int(in_.peek().text);
    if (!number) in_.fail("a whole number of 64 bits");
    expr->constant = *number;
    in_.next();
  } else if (in_.at(Token::Kind::kFloat)) {
    expr->constant = parse_float(in_.next().text).value_or(0);
  } else {
    in_.fail("an expression");
  }
  return expr;
}

ExprPtr ExprParser::name_or_constant() {
  auto expr = make(Kind::kConstant);
  const bool yes = in_.at_name("true") || in_.at_name("True");
  if (yes || in_.at_name("false") || in_.at_name("False")) {
    expr->constant = yes;
  } else if (!in_.at_name("none") && !in_.at_name("None")) {
    expr->kind = Kind::kName;
    expr->name = in_.peek().text;
  }
  in_.next();
  return expr;
}

ExprPtr ExprParser::parenthesis() {
  auto empty = make(Kind::kTuple);
  in_.next();
  if (in_.skip_operator(")")) return empty;
  ExprPtr expr = tuple();
  in_.expect_operator(")");
  return expr;
}

ExprPtr ExprParser::list_literal() {
  auto expr = make(Kind::kList);
  in_.next();
  while (!in_.at_operator("]")) {
    adopt(*expr, expression());
    if (!in_.skip_operator(",")) break;
  }
  in_.expect_operator("]");
  return expr;
}

ExprPtr ExprParser::dict_literal() {
  auto expr = make(Kind::kDict);
  in_.next();
  while (!in_.at_operator("}")) {
    adopt(*expr, expression());
    in_.expect_operator(":");
    adopt(*expr, expression());
    if (!in_.skip_operator(",")) break;
  }
  in_.expect_operator("}");
  return expr;
}

bool ExprParser::at_tuple_end() const {
  return in_.at(Token::Kind::kBlockEnd) || in_.at(Token::Kind::kPrintEnd) || in_.at_operator(")") ||
         in_.at_operator("]") || in_.at_name("if") || in_.at_name("recursive");
}

ExprPtr ExprParser::tuple(bool with_condition) {
  auto expr = make(Kind::kTuple);
  adopt(*expr, expression(with_condition));
  if (!in_.at_operator(",")) return std::move(expr->items[0]);
  while (in_.skip_operator(",") && !at_tuple_end()) adopt(*expr, expression(with_condition));
  return expr;
}

ExprPtr ExprParser::target() {
  const Level level(*this);
  const auto one = [this] {
    if (in_.skip_operator("(")) {
      ExprPtr inner = target();
      in_.expect_operator(")");
      return inner;
    }
    auto expr = make(Kind::kName);
    expr->name = in_.expect_name();
    if (!in_.skip_operator(".")) return expr;
    auto attribute = make(Kind::kAttribute);
    attribute->name = in_.expect_name();
    adopt(*attribute, std::move(expr));
    return attribute;
  };
  auto expr = make(Kind::kTuple);
  adopt(*expr, one());
  if (!in_.at_operator(",")) return std::move(expr->items[0]);
  while (in_.skip_operator(",") && in_.at(Token::Kind::kName) && !in_.at_name("in")) adopt(*expr, one());
  return expr;
}

ExprPtr ExprParser::postfix(ExprPtr expr) {
  while (true) {
    if (in_.at_operator(".")) {
      expr = member(std::move(expr));
    } else if (in_.at_operator("[")) {
      expr = subscript(std::move(expr));
    } else if (in_.at_operator("(")) {
      auto call = make(Kind::kCall);
      adopt(*call, std::move(expr));
      arguments(*call);
      expr = std::move(call);
    } else {
      return expr;
    }
  }
}

ExprPtr ExprParser::postfix_and_filters(ExprPtr expr) {
  while (true) {
    if (in_.at_operator("|")) {
      expr = filters(std::move(expr));
    } else if (in_.at_name("is")) {
      expr = test(std::move(expr));
    } else if (in_.at_operator("(")) {
      expr = postfix(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExprParser::member(ExprPtr expr) {
  auto attribute = make(Kind::kAttribute);
  in_.next();
  if (in_.at(Token::Kind::kInteger)) {
    attribute->kind = Kind::kSubscript;
    adopt(*attribute, std::move(expr));
    adopt(*attribute, primary());
    return attribute;
  }
  attribute->name = in_.expect_name();
  adopt(*attribute, std::move(expr));
  return attribute;
}

ExprPtr ExprParser::subscript(ExprPtr expr) {
  auto node = make(Kind::kSubscript);
  in_.next();
  adopt(*node, std::move(expr));
  const auto part = [this]() -> ExprPtr {
    return in_.at_operator(":") || in_.at_operator("]") ? nullptr : expression();
  };
  adopt(*node, part());
  if (in_.at_operator(":")) node->kind = Kind::kSlice;
  while (in_.skip_operator(":") && node->items.size() < 4) adopt(*node, part());
  if (node->kind == Kind::kSlice) node->items.resize(4);
  if (node->kind == Kind::kSubscript && node->items[1] == nullptr) in_.fail("an index");
  in_.expect_operator("]");
  return node;
}

ExprPtr ExprParser::filters(ExprPtr subject, bool first_bar) {
  while (in_.at_operator("|") || !first_bar) {
    if (std::exchange(first_bar, true)) in_.next();
    auto filter = make(Kind::kFilter);
    filter->name = in_.expect_name();
    while (in_.skip_operator(".")) filter->name += "." + in_.expect_name();
    adopt(*filter, std::move(subject));
    if (in_.at_operator("(")) arguments(*filter);
    subject = std::move(filter);
  }
  return subject;
}

ExprPtr ExprParser::test(ExprPtr expr) {
  auto node = make(Kind::kTest);
  in_.next();
  const bool negated = in_.skip_name("not");
  node->name = in_.expect_name();
  adopt(*node, std::move(expr));
  const bool value = in_.at(Token::Kind::kString) || in_.at(Token::Kind::kInteger) || in_.at(Token::Kind::kFloat) ||
                     in_.at(Token::Kind::kName) || in_.at_operator("[") || in_.at_operator("{");
  if (in_.at_operator("(")) {
    arguments(*node);
  } else if (value && !in_.at_name("else") && !in_.at_name("or") && !in_.at_name("and") && !in_.at_name("is")) {
    adopt(*node, postfix(primary()));
  }
  if (!negated) return node;
  auto inverse = make(Kind::kUnary);
  inverse->place = node->place;
  inverse->name = "not";
  adopt(*inverse, std::move(node));
  return inverse;
}

void ExprParser::arguments(Expr& call) {
  in_.expect_operator("(");
  while (!in_.at_operator(")")) {
    const bool named =
        in_.at(Token::Kind::kName) && in_.peek(1).kind == Token::Kind::kOperator && in_.peek(1).text == "=";
    if (named) {
      std::string name = in_.next().text;
      in_.next();
      ExprPtr value = expression();
      call.height = std::max(call.height, value->height + 1);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (in_.at_operator("*") || in_.at_operator("**")) in_.fail("an argument (* and ** are not supported)");
      adopt(call, expression());
    }
    if (!in_.skip_operator(",")) break;
  }
  in_.expect_operator(")");
}

}  // namespace lockstep::jinja
