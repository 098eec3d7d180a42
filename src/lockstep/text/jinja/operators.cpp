#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/library.h"
#include "lockstep/text/jinja/strings.h"

namespace lockstep::jinja {
namespace {

TemplateError no_operator(std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) return TemplateError(left.undefined().what);
  if (right.is_undefined()) return TemplateError(right.undefined().what);
  return TemplateError(fmt::format("TypeError: unsupported operand type(s) for {}: '{}' and '{}'", op, left.type_name(),
                                   right.type_name()));
}

/// int() of a float: throws where Python's has more digits than 64 bits.
int64_t whole(double value) {
  constexpr double kEdge = 9223372036854775808.0;  // 2^63
  if (!(value >= -kEdge && value < kEdge)) throw TemplateError("OverflowError: a float exceeds 64 bits");
  return static_cast<int64_t>(value);
}

Value int_power(int64_t base, int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  int64_t out = 1;
  for (int64_t i = 0; i < exponent; ++i) {  // at most 63 times
    if (__builtin_mul_overflow(out, base, &out)) throw TemplateError("OverflowError: ** exceeds 64 bits");
  }
  return out;
}

Value int_operator(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "**") return b < 0 ? Value(std::pow(static_cast<double>(a), static_cast<double>(b))) : int_power(a, b);
  if (op == "+" || op == "-" || op == "*") {
    const bool overflows = op == "+"   ? __builtin_add_overflow(a, b, &out)
                           : op == "-" ? __builtin_sub_overflow(a, b, &out)
                                       : __builtin_mul_overflow(a, b, &out);
    if (overflows) throw TemplateError(fmt::format("OverflowError: {} exceeds 64 bits", op));
    return out;
  }
  if (b == 0) throw TemplateError("ZeroDivisionError: division by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == "%" ? int_operator("-", 0, 0) : int_operator("-", 0, a);
  const int64_t rest = a % b, shift = rest != 0 && (rest < 0) != (b < 0) ? 1 : 0;  // Python rounds down
  return op == "%" ? rest + shift * b : a / b - shift;
}

Value float_operator(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) throw TemplateError("ZeroDivisionError: division by zero");
  if (op == "/") return a / b;
  const double down = std::floor(a / b);
  return op == "//" ? down : a - down * b;
}

/// Before it is made: one operation multiplies.
void spend_repeat(const Value& value, int64_t times) {
  size_t bytes = 0;
  if (value.is_string()) {
    bytes = value.string().size();
  } else {
    for (const Value& item : value.list().items) bytes += item.bytes();
  }
  if (times <= 0 || bytes == 0) return;
  size_t all = 0;
  spend_bytes(__builtin_mul_overflow(bytes, static_cast<size_t>(times), &all) ? SIZE_MAX : all);
  spend_steps(static_cast<size_t>(times) / 16);
}

Value repeat(const Value& value, int64_t times) {
  spend_repeat(value, times);
  if (value.is_string()) {
    std::string out;
    for (int64_t i = 0; i < times && !value.string().empty(); ++i) out += value.string();
    return out;
  }
  Values out;
  for (int64_t i = 0; i < times && !value.list().items.empty(); ++i)
    out.insert(out.end(), value.list().items.begin(), value.list().items.end());
  return {std::move(out), value.list().kind};
}

/// fmt pads and prints digits before anything could be counted.
void spend_width(std::string_view width) {
  constexpr size_t kMostDigits = 7;
  size_t digits = 0;
  for (const char c : width) {
    digits = std::isdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0;
    if (digits > kMostDigits) throw LimitError(fmt::format("a width or precision of more than {} digits", kMostDigits));
  }
  size_t number = 0, bytes = 0;
  for (const char c : width) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    number = digit ? number * 10 + static_cast<size_t>(c - '0') : 0;
    bytes = std::max(bytes, number);
  }
  spend_bytes(2 * bytes);
}

// "%s is %d" % (name, age): the conversions s, r, d, i, f with a precision.
std::string percent_format(const std::string& pattern, const Value& value) {
  const bool many = value.is_list() && value.list().kind == List::Kind::kTuple;
  const Values items = many ? value.list().items : Values{value};
  std::string out;
  size_t used = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      out += pattern[i];
      continue;
    }
    size_t end = pattern.find_first_not_of("0123456789.-+ ", i + 1);
    if (end == std::string::npos) throw TemplateError("ValueError: incomplete format");
    const std::string width = pattern.substr(i + 1, end - i - 1);
    spend_width(width);
    i = end;
    if (pattern[end] == '%') {
      out += '%';
      continue;
    }
    if (used >= items.size()) throw TemplateError("TypeError: not enough arguments for format string");
    const Value& item = items[used++];
    const bool left = width.starts_with('-');
    const std::string align = left ? width.substr(1) : width;
    switch (pattern[end]) {
      case 's':
      case 'r':
        out += fmt::format(fmt::runtime(fmt::format("{{:{}{}}}", align.empty() || left ? "" : ">", align)),
                           pattern[end] == 's' ? to_text(item) : to_repr(item));
        break;
      case 'd':
      case 'i':
        out += fmt::format(fmt::runtime(fmt::format("{{:{}{}}}", left ? "<" : "", align)),
                           item.is_float() ? whole(item.to_double()) : item.to_int());
        break;
      case 'f':
        out += fmt::format(fmt::runtime(fmt::format("{{:{}{}f}}", left ? "<" : "", align)), item.to_double());
        break;
      default:
        throw TemplateError(fmt::format("ValueError: unsupported format character '{}'", pattern[end]));
    }
  }
  if (used < items.size() && many)
    throw TemplateError("TypeError: not all arguments converted during string formatting");
  return out;
}

int64_t wrapped(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

}  // namespace

Value binary_operator(std::string_view op, const Value& left, const Value& right) {
  if (op == "~") return to_text(left) + to_text(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return float_operator(op, left.to_double(), right.to_double());
    return int_operator(op, left.to_int(), right.to_int());
  }
  if (op == "+" && left.is_string() && right.is_string()) return left.string() + right.string();
  const bool lists = left.is_list() && right.is_list() && !left.is_generator() && left.list().kind == right.list().kind;
  if (op == "+" && lists) {
    spend_repeat(left, 1);
    spend_repeat(right, 1);
    Values out = left.list().items;
    out.insert(out.end(), right.list().items.begin(), right.list().items.end());
    return {std::move(out), left.list().kind};
  }
  const auto repeats = [](const Value& v) { return v.is_string() || (v.is_list() && !v.is_generator()); };
  if (op == "*" && repeats(left) && right.is_int()) return repeat(left, right.to_int());
  if (op == "*" && repeats(right) && left.is_int()) return repeat(right, left.to_int());
  if (op == "%" && left.is_string() && !right.is_undefined()) {
    try {
      return percent_format(left.string(), right);
    } catch (const fmt::format_error& e) {
      throw TemplateError(fmt::format("ValueError: unsupported format: {}", e.what()));
    }
  }
  throw no_operator(op, left, right);
}

Value negate(const Value& value) {
  if (value.is_float()) return -value.to_double();
  return int_operator("-", 0, value.to_int());
}

Value get_attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw TemplateError(value.undefined().what);
  if (Value method = find_method(value, name); !method.is_undefined()) return method;
  const Value* found = value.is_dict()        ? value.dict().find_name(name)
                       : value.is_namespace() ? value.space().attributes.find_name(name)
                                              : nullptr;
  if (found != nullptr) return *found;
  return Undefined{fmt::format("'{} object' has no attribute '{}'", value.type_name(), cut_text(name))};
}

Value get_item(const Value& value, const Value& key) {
  if (value.is_undefined()) throw TemplateError(value.undefined().what);
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(key)) return *found;
  }
  const bool index = key.is_int() || key.is_bool();
  if (index && (value.is_string() || (value.is_list() && !value.is_generator()))) {
    const int64_t size = value.length(), at = wrapped(key.to_int(), size);
    if (at >= 0 && at < size) {
      if (value.is_list()) return value.list().items[static_cast<size_t>(at)];
      return std::string(characters(value.string())[static_cast<size_t>(at)]);
    }
  }
  if (key.is_string() && !value.is_dict()) return get_attribute(value, key.string());
  if (key.is_string()) {
    if (Value method = find_method(value, key.string()); !method.is_undefined()) return method;
  }
  return Undefined{fmt::format("'{} object' has no element {}", value.type_name(), cut_text(to_repr(key)))};
}

Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) throw TemplateError(value.undefined().what);
  if (!value.is_string() && (!value.is_list() || value.is_generator())) {
    return Undefined{fmt::format("'{} object' cannot be sliced", value.type_name())};
  }
  const int64_t size = value.length(), by = step.is_none() ? 1 : std::clamp(step.to_int(), -size - 1, size + 1);
  if (by == 0) throw TemplateError("ValueError: slice step cannot be zero");
  const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, int64_t fallback) {
    return given.is_none() ? fallback : std::clamp(wrapped(given.to_int(), size), lowest, highest);
  };
  const int64_t from = bound(start, by > 0 ? lowest : highest), to = bound(stop, by > 0 ? highest : lowest);
  std::string text;
  Values items;
  const auto letters = value.is_string() ? characters(value.string()) : std::vector<std::string_view>();
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    const auto at = static_cast<size_t>(i);
    if (value.is_string()) {
      text += letters[at];
    } else {
      items.push_back(value.list().items[at]);
    }
  }
  return value.is_string() ? Value(std::move(text)) : Value(std::move(items), value.list().kind);
}

}  // namespace lockstep::jinja
