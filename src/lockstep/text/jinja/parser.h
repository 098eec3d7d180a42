// Tokens to a tree: the expression grammar and the statements of chat templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/jinja/ast.h"

namespace lockstep::jinja {

/// Throws UserError(kCheckpoint) naming `where`, line and column for what is outside the subset.
Block parse_template(std::string_view source, const std::string& where);

/// Reads a token stream; shared by the two halves of the parser.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, const std::string& where);

  const Token& peek(size_t ahead = 0) const;
  Token next();
  bool at(Token::Kind kind) const { return peek().kind == kind; }
  bool at_operator(std::string_view op) const;
  bool at_name(std::string_view name) const;
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name();
  void expect(Token::Kind kind, std::string_view what);
  [[noreturn]] void fail(const std::string& expected) const;
  const std::string& where() const { return where_; }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  const std::string& where_;
};

class ExprParser {
 public:
  explicit ExprParser(TokenReader& reader) : in_(reader) {}

  ExprPtr expression(bool with_condition = true);
  /// One expression, or several with commas between them as a tuple.
  ExprPtr tuple(bool with_condition = true);
  /// A name, dotted name or tuple of names, for `set` and `for`.
  ExprPtr target();
  /// A primary expression and what follows it; for call blocks.
  ExprPtr unary(bool with_filter = true);
  /// `| name(…)` repeated, around `subject`. `first_bar` false: the first bar has been read.
  ExprPtr filters(ExprPtr subject, bool first_bar = true);

 private:
  ExprPtr condition();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr primary();
  ExprPtr parenthesis();
  ExprPtr list_literal();
  ExprPtr dict_literal();
  ExprPtr name_or_constant();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr postfix_and_filters(ExprPtr expr);
  ExprPtr member(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr test(ExprPtr expr);
  void arguments(Expr& call);
  ExprPtr binary(std::string op, ExprPtr left, ExprPtr right);
  ExprPtr make(Expr::Kind kind) const;
  void adopt(Expr& parent, ExprPtr child);
  [[noreturn]] void too_deep() const;
  bool at_tuple_end() const;

  class Level;
  TokenReader& in_;
  int levels_ = 0;
};

}  // namespace lockstep::jinja
