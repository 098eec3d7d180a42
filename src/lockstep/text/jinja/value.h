// Values of the template language: what Python objects a chat template meets, with Python's rules for them.
//
// Immutable but for namespaces. Lists, dicts and functions are shared, because templates pass them around freely and
// closures (macros) hold on to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"

namespace lockstep::jinja {

class Value;
using Values = std::vector<Value>;
using NamedValues = std::vector<std::pair<std::string, Value>>;

/// What a template raised: raise_exception, or a Python-like error. Becomes a UserError at the border.
class TemplateError : public std::exception {
 public:
  explicit TemplateError(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  /// Adds " (line 3, column 7)" unless an inner expression did.
  void set_place(size_t line, size_t column);

 private:
  std::string message_;
  bool placed_ = false;
};

/// Something that does not exist; `what` names it in errors ("'x' is undefined"). False, empty, prints nothing.
struct Undefined {
  std::string what;
};
struct None {};

struct List {
  enum class Kind { kList, kTuple, kGenerator };
  Values items;
  Kind kind = Kind::kList;
  bool spent = false;  // a generator yields its items once
  int depth = 1;       // of lists in lists; as in Dict and Callable, bounded because values are walked by recursion
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  const Value* find(const Value& key) const;
  const Value* find_name(std::string_view name) const;
  void set(Value key, Value value);
};

/// What `namespace(…)` makes: the one thing that a template may change.
struct Namespace {
  Dict attributes;
};

struct Arguments {
  Values positional;
  NamedValues named;

  /// The argument at `index` or of this name; null if neither is there.
  const Value* find(size_t index, std::string_view name) const;
};
using Function = std::function<Value(const Arguments&)>;
struct Callable {
  Function call;
  int depth = 1;  // with what it holds on to
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(Undefined value) : data_(std::move(value)) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(int64_t value) : data_(value) {}
  Value(size_t value) : data_(static_cast<int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string value);
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  // These throw LimitError where the rendering has made too much, or a value is nested too deep.
  Value(Values items, List::Kind kind = List::Kind::kList);
  Value(Dict dict);
  /// `holds`: the depth of the deepest value that the function captures.
  Value(Function function, int holds = 0);
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}

  static Value from_json(const Json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_generator() const { return is_list() && list().kind == List::Kind::kGenerator; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_function() const { return std::holds_alternative<std::shared_ptr<const Callable>>(data_); }
  bool is_namespace() const { return std::holds_alternative<std::shared_ptr<Namespace>>(data_); }

  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  const std::string& string() const { return std::get<std::string>(data_); }
  List& list() const { return *std::get<std::shared_ptr<List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const Function& function() const { return std::get<std::shared_ptr<const Callable>>(data_)->call; }
  Namespace& space() const { return *std::get<std::shared_ptr<Namespace>>(data_); }
  int depth() const;             // 0: holds no other value
  size_t bytes() const;          // of a copy, without what it shares
  const void* identity() const;  // for `is sameas`; null for what has none

  bool truth() const;
  int64_t to_int() const;              // bool or int; throws TemplateError
  double to_double() const;            // any number; throws TemplateError
  std::string_view type_name() const;  // as Python says it: "str", "dict"

  /// What a for loop visits: items, keys, characters; nothing for undefined. Spends a generator. Throws TemplateError.
  Values iterate() const;
  /// len(). Throws TemplateError for what has none.
  int64_t length() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<List>, std::shared_ptr<const Dict>,
               std::shared_ptr<const Callable>, std::shared_ptr<Namespace>>
      data_;
};

/// As Python's == does: 1 == True == 1.0, lists by items.
bool equal(const Value& a, const Value& b);
/// Negative, zero, positive. Throws TemplateError for values without an order.
int compare(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);

/// str(): what printing writes.
std::string to_text(const Value& value);
/// repr(): strings in quotes.
std::string to_repr(const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// json.dumps(). Throws TemplateError for what JSON does not know.
std::string to_json_text(const Value& value, const JsonStyle& style);

}  // namespace lockstep::jinja
