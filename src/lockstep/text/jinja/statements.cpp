#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/interpreter.h"
#include "lockstep/text/jinja/library.h"

namespace lockstep::jinja {
namespace {

// The `loop` variable. `changed` keeps its last arguments in `memory`, which lives as long as the loop.
Value loop_value(const Values& items, size_t i, int64_t depth, const std::shared_ptr<Value>& memory) {
  const size_t size = items.size();
  const auto neighbour = [&](bool exists, size_t at, const char* what) {
    return exists ? items[at] : Value(Undefined{what});
  };
  Dict loop;
  loop.items = {
      {"index", i + 1},
      {"index0", i},
      {"revindex", size - i},
      {"revindex0", size - i - 1},
      {"first", i == 0},
      {"last", i + 1 == size},
      {"length", size},
      {"depth", depth},
      {"depth0", depth - 1},
      {"previtem", neighbour(i > 0, i - 1, "there is no previous item")},
      {"nextitem", neighbour(i + 1 < size, i + 1, "there is no next item")},
      {"cycle", Function([i](const Arguments& a) {
         if (a.positional.empty()) throw TemplateError("TypeError: no items for cycling given");
         return a.positional[i % a.positional.size()];
       })},
      {"changed", Function([memory](const Arguments& a) -> Value {
         const Value now(a.positional, List::Kind::kTuple);
         const bool changed = !equal(now, *memory);
         *memory = now;
         return changed;
       })},
  };
  return loop;
}

/// What `loop.changed` was given may hold the loop, and so itself.
struct Forgetting {
  Value& memory;
  ~Forgetting() { memory = Value(); }
};

void write(std::string_view text, std::string& out) {
  spend_bytes(text.size());
  out += text;
}

}  // namespace

void Scope::set(const std::string& name, Value value) {
  spend_steps(names_.size() / 16);
  for (auto& [known, old] : names_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  spend_bytes(name.size() + value.bytes());
  names_.emplace_back(name, std::move(value));
}

const Value* Scope::find(const std::string& name) const {
  spend_copy(name);
  for (const Scope* scope = this; scope != nullptr; scope = scope->outside_) {
    spend_steps(scope->names_.size() / 16);
    for (const auto& [known, value] : scope->names_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Interpreter::Interpreter(const NamedValues& variables) {
  Scope& globals = scopes_.emplace_back(nullptr);
  for (auto& [name, value] : global_functions()) globals.set(name, std::move(value));
  for (const auto& [name, value] : variables) globals.set(name, value);
}

Scope& Interpreter::inside(const Scope& outside) {
  spend_bytes(sizeof(Scope) + 4 * sizeof(NamedValues::value_type));
  return scopes_.emplace_back(&outside);
}

std::string Interpreter::render(const Block& block) { return run_inside(block, scopes_.front()); }

std::string Interpreter::run_inside(const Block& block, const Scope& scope) {
  std::string out;
  run(block, inside(scope), out);
  return out;
}

Interpreter::Flow Interpreter::run(const Block& block, Scope& scope, std::string& out) {
  for (const auto& statement : block) {
    const Flow flow = run(*statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Stmt& statement, Scope& scope, std::string& out) {
  const Deeper deeper;
  using enum Stmt::Kind;
  switch (statement.kind) {
    case kText:
      write(statement.text, out);
      break;
    case kPrint:
      write(to_text(eval(*statement.expr, scope)), out);
      break;
    case kIf:
      return run(eval(*statement.expr, scope).truth() ? statement.body : statement.other, scope, out);
    case kFor:
      return run_for(statement, scope, out);
    case kSet:
      assign(*statement.target, eval(*statement.expr, scope), scope);
      break;
    case kSetBlock: {
      std::string text = run_inside(statement.body, scope);
      assign(*statement.target,
             statement.expr ? filter_text(*statement.expr, std::move(text), scope) : Value(std::move(text)), scope);
      break;
    }
    case kMacro:
      scope.set(statement.text, make_macro(statement, scope));
      break;
    case kCallBlock: {
      const Value caller = make_macro(statement, scope);
      write(to_text(eval_call(*statement.expr, scope, &caller)), out);
      break;
    }
    case kFilterBlock:
      write(to_text(filter_text(*statement.expr, run_inside(statement.body, scope), scope)), out);
      break;
    case kWith:
      run_with(statement, scope, out);
      break;
    case kScope:
      write(run_inside(statement.body, scope), out);
      break;
    case kBreak:
      return Flow::kBreak;
    case kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_for(const Stmt& statement, Scope& scope, std::string& out) {
  Values items = eval(*statement.expr, scope).iterate();
  if (statement.condition != nullptr) {
    Scope& test = inside(scope);
    std::erase_if(items, [&](const Value& item) {
      assign(*statement.target, item, test);
      return !eval(*statement.condition, test).truth();
    });
  }
  if (items.empty()) return run(statement.other, inside(scope), out);
  const auto memory = std::make_shared<Value>();
  const Forgetting forgetting{*memory};
  const Value* outer = scope.find("loop");
  const Value* depth = outer != nullptr && outer->is_dict() ? outer->dict().find_name("depth") : nullptr;
  const int64_t own_depth = 1 + (depth != nullptr && depth->is_int() ? depth->to_int() : 0);
  for (size_t i = 0; i < items.size(); ++i) {
    Scope& body = inside(scope);
    body.set("loop", loop_value(items, i, own_depth, memory));
    assign(*statement.target, items[i], body);
    if (run(statement.body, body, out) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Interpreter::run_with(const Stmt& statement, Scope& scope, std::string& out) {
  Scope& body = inside(scope);
  for (const auto& [name, value] : statement.params) body.set(name, eval(*value, scope));
  run(statement.body, body, out);
}

void Interpreter::assign(const Expr& target, Value value, Scope& scope) {
  if (target.kind == Expr::Kind::kName) {
    scope.set(target.name, std::move(value));
    return;
  }
  if (target.kind == Expr::Kind::kAttribute) {
    const Value space = eval(*target.items[0], scope);
    if (!space.is_namespace())
      throw TemplateError(fmt::format("cannot assign attribute \"{}\" on a non-namespace object", target.name));
    spend_steps(space.space().attributes.items.size() / 16);
    space.space().attributes.set(target.name, std::move(value));
    return;
  }
  const Values parts = value.iterate();
  if (parts.size() != target.items.size()) {
    throw TemplateError(
        fmt::format("ValueError: expected {} values to unpack, found {}", target.items.size(), parts.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.items[i], parts[i], scope);
}

Value Interpreter::make_macro(const Stmt& statement, Scope& scope) {
  return Function([this, &statement, &scope](const Arguments& arguments) -> Value {
    return call_macro(statement, scope, arguments);
  });
}

std::string Interpreter::call_macro(const Stmt& statement, const Scope& defined_in, const Arguments& arguments) {
  Scope& body = inside(defined_in);
  Values extra;
  for (size_t i = 0; i < statement.params.size(); ++i) {
    const auto& [name, fallback] = statement.params[i];
    const Value* given = arguments.find(i, name);
    body.set(name, given != nullptr ? *given
                   : fallback != nullptr
                       ? eval(*fallback, body)
                       : Value(Undefined{fmt::format("parameter '{}' was not provided", cut_text(name))}));
  }
  for (size_t i = statement.params.size(); i < arguments.positional.size(); ++i)
    extra.push_back(arguments.positional[i]);
  body.set("varargs", Value(std::move(extra), List::Kind::kTuple));
  Dict named;
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller") {
      body.set(name, value);
    } else if (body.find(name) == nullptr) {
      named.set(name, value);
    }
  }
  body.set("kwargs", named);
  std::string out;
  run(statement.body, body, out);
  return out;
}

}  // namespace lockstep::jinja
