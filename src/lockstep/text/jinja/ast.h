// The parsed template. One node type for expressions and one for statements: each kind says which members it uses.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/text/jinja/lexer.h"
#include "lockstep/text/jinja/value.h"

namespace lockstep::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConstant,   // constant
    kName,       // name
    kList,       // items
    kTuple,      // items
    kDict,       // items: key, value, key, value, …
    kAttribute,  // items[0].name
    kSubscript,  // items[0][items[1]]
    kSlice,      // items[0][items[1] : items[2] : items[3]], null where left out
    kCall,       // items[0](items[1…], named…)
    kFilter,     // items[0] | name(items[1…], named…); items[0] null inside a filter block
    kTest,       // items[0] is name(items[1…], named…)
    kUnary,      // name: "not", "-", "+"
    kBinary,     // items[0] name items[1]; "and", "or", "in", "not in", "~", "+", …
    kCompare,    // items[0] names[0] items[1] names[1] items[2] …
    kCondition,  // items[1] if items[0] else items[2]; items[2] may be null
  };
  Kind kind = Kind::kConstant;
  int height = 1;  // of the tree below
  Place place;
  std::string name;
  Value constant;
  std::vector<ExprPtr> items;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct Stmt {
  enum class Kind {
    kText,         // text
    kPrint,        // expr
    kIf,           // expr, body, other
    kFor,          // target in expr [if condition], body, other (nothing was visited)
    kSet,          // target = expr
    kSetBlock,     // target = body, through the filter expr if there is one
    kMacro,        // text(params), body
    kCallBlock,    // expr with a caller(params) made of body
    kFilterBlock,  // body through the filter expr
    kWith,         // params, body
    kScope,        // body (generation)
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  Place place;
  std::string text;
  ExprPtr expr, target, condition;
  std::vector<std::pair<std::string, ExprPtr>> params;  // name, default (may be null)
  Block body, other;
};

}  // namespace lockstep::jinja
