#include "lockstep/text/jinja/value.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/utf8.h"

namespace lockstep::jinja {
namespace {

TemplateError type_error(std::string message) { return TemplateError("TypeError: " + std::move(message)); }

int deeper(int depth) {
  if (depth < kMaxValueDepth) return depth + 1;
  throw LimitError(fmt::format("a value nested more than {} deep", kMaxValueDepth));
}

/// A list's depth; its bytes are paid for.
int counted(const Values& items) {
  size_t bytes = sizeof(List);
  int depth = 0;
  for (const Value& item : items) {
    bytes += item.bytes();
    depth = std::max(depth, item.depth());
  }
  spend_steps(items.size() / 16);
  spend_bytes(bytes);
  return deeper(depth);
}

Dict counted(Dict dict) {
  size_t bytes = sizeof(Dict);
  dict.depth = 0;
  for (const auto& [key, value] : dict.items) {
    bytes += key.bytes() + value.bytes();
    dict.depth = std::max({dict.depth, key.depth(), value.depth()});
  }
  spend_steps(dict.items.size() / 16);
  spend_bytes(bytes);
  dict.depth = deeper(dict.depth);
  return dict;
}

}  // namespace

void TemplateError::set_place(size_t line, size_t column) {
  if (!placed_) message_ += fmt::format(" (line {}, column {} of the template)", line, column);
  placed_ = true;
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [name, value] : items) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find_name(std::string_view name) const {
  for (const auto& [key, value] : items) {
    if (key.is_string() && key.string() == name) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  for (auto& [name, old] : items) {
    if (equal(name, key)) {
      old = std::move(value);
      return;
    }
  }
  spend_bytes(key.bytes() + value.bytes());
  items.emplace_back(std::move(key), std::move(value));
}

const Value* Arguments::find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [given, value] : named) {
    if (given == name) return &value;
  }
  return nullptr;
}

Value::Value(std::string value) : data_(std::move(value)) { spend_bytes(string().size()); }
Value::Value(Values items, List::Kind kind) {
  const int depth = counted(items);
  data_ = std::make_shared<List>(List{.items = std::move(items), .kind = kind, .depth = depth});
}
Value::Value(Dict dict) : data_(std::make_shared<const Dict>(counted(std::move(dict)))) {}
Value::Value(Function function, int holds)
    : data_(std::make_shared<const Callable>(Callable{std::move(function), deeper(holds)})) {}

Value Value::from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.items.emplace_back(key, from_json(value));
      return dict;
    }
    case Json::value_t::array: {
      Values items;
      for (const Json& item : json) items.push_back(from_json(item));
      return items;
    }
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    default:
      return {};
  }
}

int Value::depth() const {
  if (is_list()) return list().depth;
  if (is_dict()) return dict().depth;
  return is_function() ? std::get<std::shared_ptr<const Callable>>(data_)->depth : 0;
}

size_t Value::bytes() const { return sizeof(Value) + (is_string() ? string().size() : 0); }

const void* Value::identity() const {
  if (is_list()) return &list();
  if (is_dict()) return &dict();
  if (is_function()) return &function();
  return is_namespace() ? &space() : nullptr;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return to_double() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return is_generator() || !list().items.empty();
  return !is_dict() || !dict().items.empty();
}

int64_t Value::to_int() const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  if (is_int()) return std::get<int64_t>(data_);
  if (is_undefined()) throw TemplateError(undefined().what);
  throw type_error(fmt::format("expected a whole number, found {}", type_name()));
}

double Value::to_double() const {
  if (is_float()) return std::get<double>(data_);
  return static_cast<double>(to_int());
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int",      "float",
                                                "str",       "list",     "dict", "function", "namespace"};
  if (is_generator()) return "generator";
  return is_list() && list().kind == List::Kind::kTuple ? "tuple" : kNames[data_.index()];
}

Values Value::iterate() const {
  if (is_undefined()) return {};
  if (is_list()) {
    if (is_generator() && std::exchange(list().spent, true)) return {};
    counted(list().items);
    return list().items;
  }
  Values out;
  if (is_dict()) {
    spend_steps(dict().items.size());
    for (const auto& entry : dict().items) out.push_back(entry.first);
    return out;
  }
  if (!is_string()) throw type_error(fmt::format("'{}' object is not iterable", type_name()));
  spend_bytes(string().size() * sizeof(Value));
  spend_steps(string().size() / 16);
  for (size_t i = 0; i < string().size();) {
    const size_t size = utf8_step(string(), i).size;
    out.emplace_back(string().substr(i, size));
    i += size;
  }
  return out;
}

int64_t Value::length() const {
  if (is_undefined()) return 0;
  if (is_dict()) return static_cast<int64_t>(dict().items.size());
  if (is_list() && !is_generator()) return static_cast<int64_t>(list().items.size());
  if (!is_string()) throw type_error(fmt::format("object of type '{}' has no len()", type_name()));
  spend_copy(string());
  return std::count_if(string().begin(), string().end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool equal(const Value& a, const Value& b) {
  spend_steps(1);
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.to_double() == b.to_double() : a.to_int() == b.to_int();
  }
  if (a.is_string() && b.is_string()) {
    spend_copy(a.string());
    return a.string() == b.string();
  }
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_list() && b.is_list()) {
    return a.list().kind == b.list().kind && std::equal(a.list().items.begin(), a.list().items.end(),
                                                        b.list().items.begin(), b.list().items.end(), equal);
  }
  if (a.is_dict() && b.is_dict()) {
    const auto& items = a.dict().items;
    return items.size() == b.dict().items.size() && std::all_of(items.begin(), items.end(), [&](const auto& entry) {
             const Value* other = b.dict().find(entry.first);
             return other != nullptr && equal(entry.second, *other);
           });
  }
  return a.identity() != nullptr && a.identity() == b.identity();
}

int compare(const Value& a, const Value& b) {
  spend_steps(1);
  if (a.is_undefined()) throw TemplateError(a.undefined().what);
  if (b.is_undefined()) throw TemplateError(b.undefined().what);
  if (a.is_number() && b.is_number()) {
    const double left = a.to_double(), right = b.to_double();
    return left < right ? -1 : left > right ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {
    spend_copy(a.string());
    return a.string().compare(b.string());
  }
  if (a.is_list() && b.is_list()) {
    const Values &left = a.list().items, &right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return compare(left[i], right[i]);
    }
    return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
  }
  throw type_error(fmt::format("'<' not supported between instances of '{}' and '{}'", a.type_name(), b.type_name()));
}

bool contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_undefined()) throw TemplateError(item.undefined().what);
    if (!item.is_string()) {
      throw type_error(fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    }
    spend_search(container.string(), item.string());
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item) != nullptr;
  const Values items = container.iterate();
  return std::any_of(items.begin(), items.end(), [&](const Value& value) { return equal(value, item); });
}

}  // namespace lockstep::jinja
