#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/interpreter.h"
#include "lockstep/text/jinja/library.h"

namespace lockstep::jinja {

Value Interpreter::eval(const Expr& expr, const Scope& scope) {
  try {
    const Deeper deeper;
    Value value = eval_unplaced(expr, scope);
    if (value.is_string()) spend_copy(value.string());
    return value;
  } catch (TemplateError& e) {
    e.set_place(expr.place.line, expr.place.column);
    throw;
  }
}

Value Interpreter::eval_unplaced(const Expr& expr, const Scope& scope) {
  using enum Expr::Kind;
  switch (expr.kind) {
    case kConstant:
      return expr.constant;
    case kName:
      return eval_name(expr.name, scope);
    case kList:
      return eval_items(expr, scope);
    case kTuple:
      return {eval_items(expr, scope), List::Kind::kTuple};
    case kDict:
      return eval_dict(expr, scope);
    case kAttribute:
      return get_attribute(eval(*expr.items[0], scope), expr.name);
    case kSubscript:
      return get_item(eval(*expr.items[0], scope), eval(*expr.items[1], scope));
    case kSlice:
      return eval_slice(expr, scope);
    case kCall:
      return eval_call(expr, scope, nullptr);
    case kFilter:
      return apply_filter(expr.name, eval(*expr.items[0], scope), eval_arguments(expr, scope));
    case kTest:
      return apply_test(expr.name, eval(*expr.items[0], scope), eval_arguments(expr, scope));
    case kUnary: {
      const Value value = eval(*expr.items[0], scope);
      if (expr.name == "not") return !value.truth();
      return expr.name == "-" ? negate(value) : binary_operator("+", 0, value);
    }
    case kBinary:
      return eval_binary(expr, scope);
    case kCompare:
      return eval_compare(expr, scope);
    case kCondition:
      if (eval(*expr.items[0], scope).truth()) return eval(*expr.items[1], scope);
      if (expr.items[2] != nullptr) return eval(*expr.items[2], scope);
      return Undefined{"the inline if-expression evaluated to false and no else section was defined."};
  }
  return {};
}

Value Interpreter::eval_name(const std::string& name, const Scope& scope) {
  const Value* found = scope.find(name);
  return found != nullptr ? *found : Value(Undefined{fmt::format("'{}' is undefined", cut_text(name))});
}

Values Interpreter::eval_items(const Expr& expr, const Scope& scope, size_t first) {
  Values out;
  for (size_t i = first; i < expr.items.size(); ++i) out.push_back(eval(*expr.items[i], scope));
  return out;
}

Arguments Interpreter::eval_arguments(const Expr& expr, const Scope& scope) {
  Arguments out{.positional = eval_items(expr, scope, 1)};
  for (const auto& [name, value] : expr.named) out.named.emplace_back(name, eval(*value, scope));
  return out;
}

Value Interpreter::eval_dict(const Expr& expr, const Scope& scope) {
  Dict dict;
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2)
    dict.set(eval(*expr.items[i], scope), eval(*expr.items[i + 1], scope));
  return dict;
}

Value Interpreter::eval_slice(const Expr& expr, const Scope& scope) {
  const auto part = [&](size_t i) { return expr.items[i] != nullptr ? eval(*expr.items[i], scope) : Value(); };
  return get_slice(eval(*expr.items[0], scope), part(1), part(2), part(3));
}

Value Interpreter::eval_call(const Expr& expr, const Scope& scope, const Value* caller) {
  const Value callee = eval(*expr.items[0], scope);
  if (callee.is_undefined()) throw TemplateError(callee.undefined().what);
  if (!callee.is_function())
    throw TemplateError(fmt::format("TypeError: '{}' object is not callable", callee.type_name()));
  Arguments arguments = eval_arguments(expr, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  return callee.function()(arguments);
}

Value Interpreter::eval_binary(const Expr& expr, const Scope& scope) {
  Value left = eval(*expr.items[0], scope);
  if (expr.name == "and" || expr.name == "or") {
    return left.truth() == (expr.name == "or") ? left : eval(*expr.items[1], scope);
  }
  return binary_operator(expr.name, left, eval(*expr.items[1], scope));
}

Value Interpreter::eval_compare(const Expr& expr, const Scope& scope) {
  const auto holds = [](const std::string& op, const Value& left, const Value& right) {
    if (op == "==") return equal(left, right);
    if (op == "!=") return !equal(left, right);
    if (op == "in") return contains(right, left);
    if (op == "not in") return !contains(right, left);
    const int order = compare(left, right);
    return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
  };
  Value left = eval(*expr.items[0], scope);
  for (size_t i = 0; i < expr.names.size(); ++i) {
    Value right = eval(*expr.items[i + 1], scope);
    if (!holds(expr.names[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::filter_text(const Expr& filters, std::string text, const Scope& scope) {
  const Expr* inner = filters.items[0].get();
  const Value value = inner != nullptr ? filter_text(*inner, std::move(text), scope) : Value(std::move(text));
  return apply_filter(filters.name, value, eval_arguments(filters, scope));
}

}  // namespace lockstep::jinja
