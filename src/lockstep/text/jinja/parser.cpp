#include "lockstep/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"

namespace lockstep::jinja {

TokenReader::TokenReader(std::vector<Token> tokens, const std::string& where)
    : tokens_(std::move(tokens)), where_(where) {}

const Token& TokenReader::peek(size_t ahead) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }

Token TokenReader::next() {
  Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::at_operator(std::string_view op) const { return at(Token::Kind::kOperator) && peek().text == op; }
bool TokenReader::at_name(std::string_view name) const { return at(Token::Kind::kName) && peek().text == name; }

bool TokenReader::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  next();
  return true;
}

bool TokenReader::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void TokenReader::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail(fmt::format("\"{}\"", op));
}

std::string TokenReader::expect_name() {
  if (!at(Token::Kind::kName)) fail("a name");
  return next().text;
}

void TokenReader::expect(Token::Kind kind, std::string_view what) {
  if (!at(kind)) fail(fmt::format("\"{}\"", what));
  next();
}

void TokenReader::fail(const std::string& expected) const {
  const Token& token = peek();
  std::string found = '"' + cut_text(token.text) + '"';
  if (token.kind == Token::Kind::kEnd) found = "the end of the template";
  if (token.kind == Token::Kind::kBlockEnd) found = "\"%}\"";
  if (token.kind == Token::Kind::kPrintEnd) found = "\"}}\"";
  syntax_error(where_, token.place, fmt::format("expected {}, found {}", expected, found));
}

namespace {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : in_(std::move(tokens), where), exprs_(in_) {}

  Block run() {
    Block block = until({});
    if (!in_.at(Token::Kind::kEnd)) in_.fail("a statement");
    return block;
  }

 private:
  using Kind = Stmt::Kind;
  using Names = std::initializer_list<std::string_view>;

  /// A block in a block, an elif behind an elif: both recurse, here and wherever the tree is walked.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.levels_ > kMaxBlocks) parser_.in_.fail(fmt::format("at most {} nested blocks", kMaxBlocks));
    }
    ~Level() { --parser_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  // Statements up to a block that starts with one of `ends`, whose "{%" is read and whose name is not.
  Block until(Names ends) {
    const Level level(*this);
    Block block;
    while (!in_.at(Token::Kind::kEnd)) {
      const Token token = in_.peek();
      if (token.kind == Token::Kind::kText) {
        auto text = make(Kind::kText);
        text->text = in_.next().text;
        block.push_back(std::move(text));
      } else if (token.kind == Token::Kind::kPrintBegin) {
        auto print = make(Kind::kPrint);
        in_.next();
        print->expr = exprs_.tuple();
        in_.expect(Token::Kind::kPrintEnd, "}}");
        block.push_back(std::move(print));
      } else {
        in_.expect(Token::Kind::kBlockBegin, "{%");
        for (const std::string_view end : ends) {
          if (in_.at_name(end)) return block;
        }
        block.push_back(statement());
      }
    }
    if (ends.size() > 0) in_.fail(fmt::format("\"{}\"", *(ends.end() - 1)));
    return block;
  }

  std::unique_ptr<Stmt> make(Kind kind) const {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->place = in_.peek().place;
    return statement;
  }

  void end_block() { in_.expect(Token::Kind::kBlockEnd, "%}"); }

  // The body of a block and its end tag.
  Block body(std::string_view end) {
    end_block();
    Block block = until({end});
    in_.next();
    end_block();
    return block;
  }

  std::unique_ptr<Stmt> statement() {
    if (in_.skip_name("if")) return if_statement();
    if (in_.skip_name("for")) return for_statement();
    if (in_.skip_name("set")) return set_statement();
    if (in_.skip_name("macro")) return macro();
    if (in_.skip_name("call")) return call_block();
    if (in_.skip_name("filter")) return filter_block();
    if (in_.skip_name("with")) return with_block();
    if (in_.skip_name("generation")) {
      auto scope = make(Kind::kScope);
      scope->body = body("endgeneration");
      return scope;
    }
    if (in_.at_name("break") || in_.at_name("continue")) {
      auto jump = make(in_.at_name("break") ? Kind::kBreak : Kind::kContinue);
      in_.next();
      end_block();
      return jump;
    }
    in_.fail("if, for, set, macro, call, filter, with, generation, break or continue");
  }

  std::unique_ptr<Stmt> if_statement() {
    const Level level(*this);
    auto statement = make(Kind::kIf);
    statement->expr = exprs_.tuple(/*with_condition=*/false);
    end_block();
    statement->body = until({"elif", "else", "endif"});
    if (in_.skip_name("elif")) {
      statement->other.push_back(if_statement());  // reads the endif too
      return statement;
    }
    if (in_.skip_name("else")) {
      end_block();
      statement->other = until({"endif"});
    }
    in_.next();
    end_block();
    return statement;
  }

  std::unique_ptr<Stmt> for_statement() {
    auto statement = make(Kind::kFor);
    statement->target = exprs_.target();
    if (!in_.skip_name("in")) in_.fail("\"in\"");
    statement->expr = exprs_.tuple(/*with_condition=*/false);
    if (in_.skip_name("if")) statement->condition = exprs_.expression();
    if (in_.at_name("recursive")) in_.fail("\"%}\" (recursive loops are not supported)");
    end_block();
    statement->body = until({"else", "endfor"});
    if (in_.skip_name("else")) {
      end_block();
      statement->other = until({"endfor"});
    }
    in_.next();
    end_block();
    return statement;
  }

  std::unique_ptr<Stmt> set_statement() {
    auto statement = make(Kind::kSet);
    statement->target = exprs_.target();
    if (in_.skip_operator("=")) {
      statement->expr = exprs_.tuple();
      end_block();
      return statement;
    }
    statement->kind = Kind::kSetBlock;
    if (in_.at_operator("|")) statement->expr = exprs_.filters(nullptr);
    statement->body = body("endset");
    return statement;
  }

  void parameters(Stmt& statement) {
    in_.expect_operator("(");
    while (!in_.at_operator(")")) {
      std::string name = in_.expect_name();
      statement.params.emplace_back(std::move(name), in_.skip_operator("=") ? exprs_.expression() : nullptr);
      if (!in_.skip_operator(",")) break;
    }
    in_.expect_operator(")");
  }

  std::unique_ptr<Stmt> macro() {
    auto statement = make(Kind::kMacro);
    statement->text = in_.expect_name();
    parameters(*statement);
    statement->body = body("endmacro");
    return statement;
  }

  std::unique_ptr<Stmt> call_block() {
    auto statement = make(Kind::kCallBlock);
    if (in_.at_operator("(")) parameters(*statement);
    statement->expr = exprs_.unary(/*with_filter=*/false);
    if (statement->expr->kind != Expr::Kind::kCall) in_.fail("a call");
    statement->body = body("endcall");
    return statement;
  }

  std::unique_ptr<Stmt> filter_block() {
    auto statement = make(Kind::kFilterBlock);
    statement->expr = exprs_.filters(nullptr, /*first_bar=*/false);
    statement->body = body("endfilter");
    return statement;
  }

  std::unique_ptr<Stmt> with_block() {
    auto statement = make(Kind::kWith);
    while (in_.at(Token::Kind::kName)) {
      std::string name = in_.expect_name();
      in_.expect_operator("=");
      statement->params.emplace_back(std::move(name), exprs_.expression());
      if (!in_.skip_operator(",")) break;
    }
    statement->body = body("endwith");
    return statement;
  }

  TokenReader in_;
  ExprParser exprs_;
  int levels_ = 0;
};

}  // namespace

Block parse_template(std::string_view source, const std::string& where) {
  return Parser(tokenize_template(source, where), where).run();
}

}  // namespace lockstep::jinja
