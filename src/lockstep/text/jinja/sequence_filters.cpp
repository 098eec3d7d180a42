#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/library.h"
#include "lockstep/text/jinja/strings.h"

namespace lockstep::jinja {
namespace {

Value generator(Values items) { return {std::move(items), List::Kind::kGenerator}; }

// What map and the select filters visit: nothing for any false value, as Jinja does.
Values visited(const Value& value) { return value.truth() ? value.iterate() : Values(); }

// item.a.0.b for the path "a.0.b"; the item itself for none.
Value at_path(Value item, const Value& path) {
  if (path.is_none()) return item;
  if (path.is_int()) return get_item(item, path);
  for (const std::string& part : split(to_text(path), ".")) {
    spend_steps(1 + item.bytes() / 256);
    const auto index = part.find_first_not_of("0123456789") == std::string::npos ? parse_int(part) : std::nullopt;
    item = get_item(item, index ? Value(*index) : Value(part));
  }
  return item;
}

Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(lower(value.string())) : value;
}

Value join(const Value& value, const Arguments& arguments) {
  const std::string separator = to_text(argument_or(arguments, 0, "d", ""));
  const Value path = argument_or(arguments, 1, "attribute", Value());
  std::string out;
  bool first = true;
  for (const Value& item : value.iterate()) {
    if (!std::exchange(first, false)) out += separator;
    spend_bytes(separator.size() + item.bytes());
    out += to_text(at_path(item, path));
  }
  return out;
}

Value first(const Value& value, const Arguments&) {
  const Values items = value.iterate();
  return items.empty() ? Value(Undefined{"No first item, sequence was empty."}) : items.front();
}

Value last(const Value& value, const Arguments&) {
  const Values items = value.iterate();
  return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
}

Value reverse(const Value& value, const Arguments&) {
  Values items = value.iterate();
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return generator(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.string();
  return out;
}

Value items_filter(const Value& value, const Arguments&) {
  if (value.is_undefined()) return generator({});
  if (!value.is_dict()) throw TemplateError("TypeError: Can only get item pairs from a mapping.");
  return generator(find_method(value, "items").function()({}).iterate());
}

Values sorted(Values items, const Value& path, bool reversed, bool case_sensitive) {
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    const int order = compare(folded(at_path(a, path), case_sensitive), folded(at_path(b, path), case_sensitive));
    return reversed ? order > 0 : order < 0;
  });
  return items;
}

Value sort(const Value& value, const Arguments& arguments) {
  return sorted(value.iterate(), argument_or(arguments, 2, "attribute", Value()),
                flag_argument(arguments, 0, "reverse", false), flag_argument(arguments, 1, "case_sensitive", false));
}

Value dictsort(const Value& value, const Arguments& arguments) {
  const Value by = text_argument(arguments, 1, "by", "key") == "value" ? 1 : 0;
  return sorted(find_method(value, "items").function()({}).iterate(), by, flag_argument(arguments, 2, "reverse", false),
                flag_argument(arguments, 0, "case_sensitive", false));
}

Value unique(const Value& value, const Arguments& arguments) {
  const bool case_sensitive = flag_argument(arguments, 0, "case_sensitive", false);
  const Value path = argument_or(arguments, 1, "attribute", Value());
  Values out, seen;
  for (const Value& item : value.iterate()) {
    Value key = folded(at_path(item, path), case_sensitive);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(other, key); })) continue;
    seen.push_back(std::move(key));
    out.push_back(item);
  }
  return generator(std::move(out));
}

Value extreme(const Value& value, const Arguments& arguments, bool largest) {
  const Values items = sorted(value.iterate(), argument_or(arguments, 1, "attribute", Value()), largest,
                              flag_argument(arguments, 0, "case_sensitive", false));
  return items.empty() ? Value(Undefined{"No aggregated item, sequence was empty."}) : items.front();
}

Value sum(const Value& value, const Arguments& arguments) {
  Value total = argument_or(arguments, 1, "start", 0);
  const Value path = argument_or(arguments, 0, "attribute", Value());
  for (const Value& item : value.iterate()) total = binary_operator("+", total, at_path(item, path));
  return total;
}

Value map(const Value& value, const Arguments& arguments) {
  Values out;
  if (const Value* path = arguments.find(SIZE_MAX, "attribute")) {
    const Value* fallback = arguments.find(SIZE_MAX, "default");
    for (const Value& item : visited(value)) {
      const Value found = at_path(item, *path);
      out.push_back(found.is_undefined() && fallback != nullptr ? *fallback : found);
    }
    return generator(std::move(out));
  }
  const std::string name = text_argument(arguments, 0, "filter", "");
  if (name.empty()) throw TemplateError("map requires a filter argument");
  for (const Value& item : visited(value)) out.push_back(apply_filter(name, item, arguments_after(arguments, 1)));
  return generator(std::move(out));
}

// select, reject (by the item) and selectattr, rejectattr (by an attribute of it). Without a test: by truth.
Value select(const Value& value, const Arguments& arguments, bool keeps, bool by_attribute) {
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) throw TemplateError("Missing parameter for attribute name");
  const bool has_test = arguments.positional.size() > test_at;
  const Arguments test_arguments = arguments_after(arguments, test_at + 1);
  Values out;
  for (const Value& item : visited(value)) {
    const Value subject = by_attribute ? at_path(item, arguments.positional[0]) : item;
    const bool passes =
        has_test ? apply_test(to_text(arguments.positional[test_at]), subject, test_arguments) : subject.truth();
    if (passes == keeps) out.push_back(item);
  }
  return generator(std::move(out));
}

Value batch(const Value& value, const Arguments& arguments) {
  const auto size = static_cast<size_t>(std::max<int64_t>(1, int_argument(arguments, 0, "linecount", 1)));
  const Value fill = argument_or(arguments, 1, "fill_with", Value());
  Values out, row;
  for (const Value& item : value.iterate()) {
    if (row.size() == size) out.emplace_back(std::exchange(row, {}));
    row.push_back(item);
  }
  while (!fill.is_none() && !row.empty() && row.size() < size) {
    spend_bytes(fill.bytes());
    row.push_back(fill);
  }
  if (!row.empty()) out.emplace_back(std::move(row));
  return generator(std::move(out));
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = {
      {"join", join},
      {"first", first},
      {"last", last},
      {"reverse", reverse},
      {"list", [](const Value& v, const Arguments&) -> Value { return v.iterate(); }},
      {"items", items_filter},
      {"sort", sort},
      {"dictsort", dictsort},
      {"unique", unique},
      {"min", [](const Value& v, const Arguments& a) { return extreme(v, a, false); }},
      {"max", [](const Value& v, const Arguments& a) { return extreme(v, a, true); }},
      {"sum", sum},
      {"map", map},
      {"select", [](const Value& v, const Arguments& a) { return select(v, a, true, false); }},
      {"reject", [](const Value& v, const Arguments& a) { return select(v, a, false, false); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return select(v, a, true, true); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return select(v, a, false, true); }},
      {"batch", batch},
  };
  const auto found = filters.find(name);
  return found != filters.end() ? found->second : nullptr;
}

}  // namespace lockstep::jinja
