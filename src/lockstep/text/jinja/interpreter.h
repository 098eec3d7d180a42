// Walks a parsed template and writes text. One interpreter a rendering.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/text/jinja/ast.h"
#include "lockstep/text/jinja/value.h"

namespace lockstep::jinja {

/// Names of one block; what is not here is looked up outside.
class Scope {
 public:
  explicit Scope(const Scope* outside) : outside_(outside) {}
  void set(const std::string& name, Value value);
  const Value* find(const std::string& name) const;

 private:
  const Scope* outside_;
  NamedValues names_;
};

class Interpreter {
 public:
  explicit Interpreter(const NamedValues& variables);
  /// Throws TemplateError.
  std::string render(const Block& block);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Scope& inside(const Scope& outside);

  // Statements.
  Flow run(const Block& block, Scope& scope, std::string& out);
  Flow run(const Stmt& statement, Scope& scope, std::string& out);
  Flow run_for(const Stmt& statement, Scope& scope, std::string& out);
  void run_with(const Stmt& statement, Scope& scope, std::string& out);
  std::string run_inside(const Block& block, const Scope& scope);
  void assign(const Expr& target, Value value, Scope& scope);
  Value make_macro(const Stmt& statement, Scope& scope);
  std::string call_macro(const Stmt& statement, const Scope& defined_in, const Arguments& arguments);

  // Expressions.
  Value eval(const Expr& expr, const Scope& scope);
  Value eval_unplaced(const Expr& expr, const Scope& scope);
  Value eval_name(const std::string& name, const Scope& scope);
  Value eval_call(const Expr& expr, const Scope& scope, const Value* caller);
  Value eval_binary(const Expr& expr, const Scope& scope);
  Value eval_compare(const Expr& expr, const Scope& scope);
  Value eval_dict(const Expr& expr, const Scope& scope);
  Value eval_slice(const Expr& expr, const Scope& scope);
  Values eval_items(const Expr& expr, const Scope& scope, size_t first = 0);
  Arguments eval_arguments(const Expr& expr, const Scope& scope);
  /// A chain of filters over the text of a block.
  Value filter_text(const Expr& filters, std::string text, const Scope& scope);

  std::deque<Scope> scopes_;  // all of a rendering, because macros refer to the scope they were defined in
};

}  // namespace lockstep::jinja
