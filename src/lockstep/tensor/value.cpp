#include "lockstep/tensor/value.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

template <typename T, typename Variant>
const T* held(const Variant& value) {
  const auto* pointer = std::get_if<std::shared_ptr<const T>>(&value);
  return pointer == nullptr ? nullptr : pointer->get();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string join_structures(const Value::List& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + items[i].structure();
  return out;
}

/// "[str...]": a list of one kind of item may differ in length over ranks; "[...]" is an empty one.
std::string list_text(const Value::List& items) {
  if (items.empty()) return "[...]";
  const std::string first = items[0].structure();
  const bool alike =
      std::all_of(items.begin(), items.end(), [&](const Value& item) { return item.structure() == first; });
  return alike ? "[" + first + "...]" : "[" + join_structures(items) + "]";
}

/// "f32[*, 4]": the first dimension may differ over ranks, the others may not.
std::string tensor_text(const Tensor& tensor) {
  std::string out = dtype_name(dtype_of(tensor)) + "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) out += i == 0 ? std::string("*") : fmt::format(", {}", tensor.size(i));
  return out + "]";
}

}  // namespace

Value::Value(bool value) : value_(value) {}
Value::Value(int64_t value) : value_(value) {}
Value::Value(double value) : value_(value) {}
Value::Value(std::string value) : value_(std::move(value)) {}
Value::Value(const char* value) : value_(std::string(value)) {}
Value::Value(const Tensor& value) : value_(std::make_shared<const Tensor>(value)) {}
Value::Value(List items) : value_(std::make_shared<const List>(std::move(items))) {}
Value::Value(Tuple items) : value_(std::make_shared<const Tuple>(std::move(items))) {}
Value::Value(Dict entries) : value_(std::make_shared<const Dict>(std::move(entries))) {}

bool Value::is_none() const { return std::holds_alternative<std::monostate>(value_); }

const Tensor* Value::tensor() const { return held<Tensor>(value_); }
const Value::List* Value::list() const { return held<List>(value_); }
const Value::Tuple* Value::tuple() const { return held<Tuple>(value_); }
const Value::Dict* Value::dict() const { return held<Dict>(value_); }
const std::string* Value::string() const { return std::get_if<std::string>(&value_); }
const int64_t* Value::integer() const { return std::get_if<int64_t>(&value_); }
const double* Value::number() const { return std::get_if<double>(&value_); }
const bool* Value::boolean() const { return std::get_if<bool>(&value_); }

std::string Value::structure() const {
  if (is_none()) return "none";
  if (boolean() != nullptr) return "bool";
  if (integer() != nullptr) return "int";
  if (number() != nullptr) return "float";
  if (string() != nullptr) return "str";
  if (const Tensor* t = tensor()) return tensor_text(*t);
  if (const List* items = list()) return list_text(*items);
  if (const Tuple* items = tuple()) {
    return "(" + join_structures(items->items) + (items->items.size() == 1 ? ",)" : ")");
  }
  std::string out = "{";
  for (const auto& [key, value] : *dict()) out += (out.size() > 1 ? ", " : "") + quoted(key) + ": " + value.structure();
  return out + "}";
}

}  // namespace lockstep
