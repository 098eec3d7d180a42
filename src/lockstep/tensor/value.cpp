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
  std::optional<std::string> item = items[0].structure();
  for (size_t i = 1; i < items.size() && item; ++i) item = merged_structure(*item, items[i].structure());
  return item ? "[" + *item + "...]" : "[" + join_structures(items) + "]";
}

/// Where the bracket that encloses `at` closes; brackets in quoted keys do not count.
size_t closing_bracket(std::string_view text, size_t at) {
  int depth = 0;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']' && --depth < 0) {
      return at;
    }
  }
  return at;
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

std::optional<std::string> merged_structure(std::string_view a, std::string_view b) {
  std::string out;
  bool quoted = false;  // in a key, where brackets are letters
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const bool a_empty = a.substr(i).starts_with("[...]"), b_empty = b.substr(j).starts_with("[...]");
    if (!quoted && a[i] == '[' && b[j] == '[' && a_empty != b_empty) {
      const size_t i_end = closing_bracket(a, i + 1) + 1, j_end = closing_bracket(b, j + 1) + 1;
      out += a_empty ? b.substr(j, j_end - j) : a.substr(i, i_end - i);
      i = i_end;
      j = j_end;
      continue;
    }
    if (a[i] != b[j]) return std::nullopt;
    out += a[i];
    if (quoted && a[i] == '\\' && i + 1 < a.size() && j + 1 < b.size()) {
      if (a[++i] != b[++j]) return std::nullopt;
      out += a[i];
    } else if (a[i] == '"') {
      quoted = !quoted;
    }
    ++i;
    ++j;
  }
  if (i != a.size() || j != b.size()) return std::nullopt;
  return out;
}

}  // namespace lockstep
