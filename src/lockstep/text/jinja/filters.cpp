// Filters of single values, and the table of all filters. Sequence filters are in jinja_sequence_filters.cpp.
#include <cmath>
#include <unordered_map>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/library.h"
#include "lockstep/text/jinja/strings.h"

namespace lockstep::jinja {
namespace {

Value default_filter(const Value& value, const Arguments& arguments) {
  const bool replaces = value.is_undefined() || (flag_argument(arguments, 1, "boolean", false) && !value.truth());
  return replaces ? argument_or(arguments, 0, "default_value", "") : value;
}

Value trim(const Value& value, const Arguments& arguments) {
  const std::string text = to_text(value);
  const Value set = argument_or(arguments, 0, "chars", Value());
  if (set.is_none()) return strip_left(strip_right(text));
  return strip_left(strip_right(text, to_text(set)), to_text(set));
}

bool fits_int(double value) { return value >= -9.2233720368547758e18 && value < 9.2233720368547758e18; }

Value int_filter(const Value& value, const Arguments& arguments) {
  if (value.is_string()) {
    const int64_t base = int_argument(arguments, 1, "base", 10);
    if (base < 2 || base > 36) throw TemplateError("ValueError: int() base must be >= 2 and <= 36");
    if (const auto whole = parse_int(value.string(), static_cast<int>(base))) return *whole;
    if (const auto number = parse_float(value.string()); number && fits_int(*number))
      return static_cast<int64_t>(*number);
  } else if (value.is_number() && !value.is_float()) {
    return value.to_int();
  } else if (value.is_number() && fits_int(value.to_double())) {
    return static_cast<int64_t>(value.to_double());
  } else if (value.is_undefined()) {
    throw TemplateError(value.undefined().what);
  }
  return argument_or(arguments, 0, "default", 0);
}

Value float_filter(const Value& value, const Arguments& arguments) {
  if (value.is_number()) return value.to_double();
  if (value.is_undefined()) throw TemplateError(value.undefined().what);
  const auto number = value.is_string() ? parse_float(value.string()) : std::nullopt;
  return number ? Value(*number) : argument_or(arguments, 0, "default", 0.0);
}

Value round_filter(const Value& value, const Arguments& arguments) {
  const double scale = std::pow(10.0, static_cast<double>(int_argument(arguments, 0, "precision", 0)));
  const std::string method = text_argument(arguments, 1, "method", "common");
  const double scaled = value.to_double() * scale;
  return (method == "ceil"    ? std::ceil(scaled)
          : method == "floor" ? std::floor(scaled)
                              : std::nearbyint(scaled)) /
         scale;
}

Value replace_filter(const Value& value, const Arguments& arguments) {
  const auto text = [&](size_t index, std::string_view name) {
    return to_text(argument_or(arguments, index, name, ""));
  };
  const Value count = argument_or(arguments, 2, "count", Value());
  return replace(to_text(value), text(0, "old"), text(1, "new"), count.is_none() ? -1 : count.to_int());
}

/// A width in spaces, or the text itself.
std::string margin(const Value& width) {
  return width.is_string() ? width.string() : binary_operator("*", " ", width.to_int()).string();
}

Value indent(const Value& value, const Arguments& arguments) {
  const std::string space = margin(argument_or(arguments, 0, "width", 4));
  const bool blank = flag_argument(arguments, 2, "blank", false);
  std::string out;
  if (flag_argument(arguments, 1, "first", false)) out = space;
  bool first = true;
  for (const std::string& line : split_lines(to_text(value) + "\n")) {
    if (!first) out += '\n';
    if (!first && (blank || !line.empty())) {
      spend_bytes(space.size());
      out += space;
    }
    out += line;
    first = false;
  }
  return out;
}

Value tojson(const Value& value, const Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = flag_argument(arguments, 0, "ensure_ascii", false);
  const Value width = argument_or(arguments, 1, "indent", Value());
  style.has_indent = !width.is_none();
  if (style.has_indent) {
    style.indent = margin(width);
    style.item_separator.pop_back();  // the newline stands for the space
  }
  const Value separators = argument_or(arguments, 2, "separators", Value());
  if (!separators.is_none()) {
    const Values parts = separators.iterate();
    if (parts.size() != 2) throw TemplateError("ValueError: tojson: separators must be two strings");
    style.item_separator = to_text(parts[0]);
    style.key_separator = to_text(parts[1]);
  }
  style.sort_keys = flag_argument(arguments, 3, "sort_keys", false);
  return to_json_text(value, style);
}

// title: a capital behind white space, a dash or an opening bracket, and small letters elsewhere.
Value title_filter(const Value& value, const Arguments&) {
  std::string out;
  bool starts = true;
  const std::string text = to_text(value);
  for (const std::string_view c : characters(text)) {
    out += starts ? upper(c) : lower(c);
    starts = strip_left(c).empty() || std::string_view("-({[<").find(c) != std::string_view::npos;
  }
  return out;
}

Value abs_filter(const Value& value, const Arguments&) {
  if (value.is_float()) return std::fabs(value.to_double());
  return value.to_int() < 0 ? negate(value) : Value(value.to_int());
}

Value attr_filter(const Value& value, const Arguments& arguments) {
  return get_attribute(value, text_argument(arguments, 0, "name", ""));
}

Value format_filter(const Value& value, const Arguments& arguments) {
  return binary_operator("%", to_text(value), Value(arguments.positional, List::Kind::kTuple));
}

Value center(const Value& value, const Arguments& arguments) {
  const Arguments width{.positional = {int_argument(arguments, 0, "width", 80)}};
  return find_method(to_text(value), "center").function()(width);
}

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = {
      {"default", default_filter},
      {"d", default_filter},
      {"trim", trim},
      {"upper", [](const Value& v, const Arguments&) -> Value { return upper(to_text(v)); }},
      {"lower", [](const Value& v, const Arguments&) -> Value { return lower(to_text(v)); }},
      {"capitalize", [](const Value& v, const Arguments&) -> Value { return capitalize(to_text(v)); }},
      {"string", [](const Value& v, const Arguments&) -> Value { return to_text(v); }},
      {"safe", [](const Value& v, const Arguments&) -> Value { return to_text(v); }},
      {"title", title_filter},
      {"center", center},
      {"format", format_filter},
      {"replace", replace_filter},
      {"indent", indent},
      {"tojson", tojson},
      {"int", int_filter},
      {"float", float_filter},
      {"round", round_filter},
      {"abs", abs_filter},
      {"attr", attr_filter},
      {"wordcount", [](const Value& v, const Arguments&) -> Value { return split(to_text(v), "").size(); }},
      {"length", [](const Value& v, const Arguments&) -> Value { return v.length(); }},
      {"count", [](const Value& v, const Arguments&) -> Value { return v.length(); }},
  };
  const auto found = filters.find(name);
  return found != filters.end() ? found->second : find_sequence_filter(name);
}

}  // namespace

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const Deeper deeper;
  const Filter filter = find_filter(name);
  if (filter == nullptr) throw TemplateError(fmt::format("the filter \"{}\" is not supported", cut_text(name)));
  return filter(value, arguments);
}

}  // namespace lockstep::jinja
