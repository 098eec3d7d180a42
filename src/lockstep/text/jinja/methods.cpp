// Methods of strings, lists and dicts, and the arguments of everything that templates call.
#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/library.h"
#include "lockstep/text/jinja/strings.h"
#include "lockstep/text/utf8.h"

namespace lockstep::jinja {

Value argument_or(const Arguments& arguments, size_t index, std::string_view name, const Value& fallback) {
  const Value* found = arguments.find(index, name);
  return found != nullptr ? *found : fallback;
}

std::string text_argument(const Arguments& arguments, size_t index, std::string_view name, std::string_view fallback) {
  const Value value = argument_or(arguments, index, name, fallback);
  if (value.is_none()) return std::string(fallback);
  if (!value.is_string()) {
    throw TemplateError(fmt::format("TypeError: argument \"{}\": expected a str, found {}", name, value.type_name()));
  }
  return value.string();
}

int64_t int_argument(const Arguments& arguments, size_t index, std::string_view name, int64_t fallback) {
  return argument_or(arguments, index, name, fallback).to_int();
}

bool flag_argument(const Arguments& arguments, size_t index, std::string_view name, bool fallback) {
  return argument_or(arguments, index, name, fallback).truth();
}

Arguments arguments_after(const Arguments& arguments, size_t count) {
  Arguments out;
  spend_steps(arguments.positional.size());
  for (size_t i = count; i < arguments.positional.size(); ++i) out.positional.push_back(arguments.positional[i]);
  out.named = arguments.named;
  return out;
}

namespace {

using Text = const std::string&;
using Method = Value (*)(Text, const Arguments&);

Values to_values(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

// "x".startswith(p) where p is a string or a tuple of strings.
template <typename Matches>
Value any_affix(const Arguments& arguments, const Matches& matches) {
  const Value affix = argument_or(arguments, 0, "prefix", Undefined{"a str"});
  if (affix.is_string()) return matches(affix.string());
  if (!affix.is_list() || affix.list().kind != List::Kind::kTuple) {
    throw TemplateError(fmt::format("TypeError: expected a str or a tuple of str, found {}", affix.type_name()));
  }
  const Values& affixes = affix.list().items;
  return std::any_of(affixes.begin(), affixes.end(),
                     [&](const Value& v) { return v.is_string() && matches(v.string()); });
}

Value find_text(Text text, const Arguments& arguments, bool from_right) {
  const std::string needle = text_argument(arguments, 0, "sub", "");
  spend_search(text, needle);
  const size_t at = from_right ? text.rfind(needle) : text.find(needle);
  if (at == std::string::npos) return -1;
  return Value(std::string_view(text).substr(0, at)).length();  // in characters
}

Value join(Text separator, const Arguments& arguments) {
  std::string out;
  bool first = true;
  for (const Value& item : argument_or(arguments, 0, "iterable", Undefined{"an iterable"}).iterate()) {
    if (!item.is_string())
      throw TemplateError(fmt::format("TypeError: join: expected str, found {}", item.type_name()));
    if (!std::exchange(first, false)) out += separator;
    spend_bytes(separator.size() + item.bytes());
    out += item.string();
  }
  return out;
}

Value pad(Text text, const Arguments& arguments, bool left, bool right) {
  const int64_t width = std::max<int64_t>(0, int_argument(arguments, 0, "width", 0));
  const int64_t missing = width - Value(text).length();
  if (missing <= 0) return text;
  const std::string fill = text_argument(arguments, 1, "fillchar", " ");
  const int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  const Value head = binary_operator("*", fill, before), tail = binary_operator("*", fill, missing - before);
  return head.string() + text + tail.string();
}

Value partition(Text text, const Arguments& arguments, bool from_right) {
  const std::string separator = text_argument(arguments, 0, "sep", " ");
  spend_search(text, separator);
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  Values parts = {text, "", ""};
  if (at == std::string::npos && from_right) parts = {"", "", text};
  if (at != std::string::npos) parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  return {std::move(parts), List::Kind::kTuple};
}

// "{} {0} {name}".format(…), without format specifications.
Value brace_format(Text text, const Arguments& arguments) {
  std::string out;
  size_t used = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
    if ((text[i] != '{' && text[i] != '}') || doubled) {
      out += text[i];
      i += (text[i] == '{' || text[i] == '}') ? 1 : 0;
      continue;
    }
    const size_t end = text.find('}', i);
    if (text[i] == '}' || end == std::string::npos) throw TemplateError("ValueError: single brace in a format string");
    const std::string field = text.substr(i + 1, end - i - 1);
    const auto index = field.empty() ? std::optional(static_cast<int64_t>(used++)) : parse_int(field);
    const Value* value = index ? arguments.find(static_cast<size_t>(*index), "") : arguments.find(SIZE_MAX, field);
    if (value == nullptr) throw TemplateError(fmt::format("format: nothing for field \"{{{}}}\"", cut_text(field)));
    spend_bytes(value->bytes());
    out += to_text(*value);
    i = end;
  }
  return out;
}

Value strip(Text text, const Arguments& arguments, bool left, bool right) {
  const Value set = argument_or(arguments, 0, "chars", Value());
  std::string_view view = text;
  if (left) view = set.is_none() ? strip_left(view) : strip_left(view, text_argument(arguments, 0, "chars", ""));
  if (right) view = set.is_none() ? strip_right(view) : strip_right(view, text_argument(arguments, 0, "chars", ""));
  return view;
}

template <typename Wanted>
bool all_characters(Text text, const Wanted& wanted) {
  const auto letters = characters(text);
  return !letters.empty() && std::all_of(letters.begin(), letters.end(), wanted);
}

bool is_digit(std::string_view c) { return c.size() == 1 && c[0] >= '0' && c[0] <= '9'; }
bool is_letter(std::string_view c) {
  return upper(c) != lower(c) || (c.size() > 2 && utf8_step(c, 0).code_point > 0x900);
}

int64_t count_text(Text text, std::string_view part) {
  if (part.empty()) return Value(text).length() + 1;
  spend_search(text, part);
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

Value without_suffix(Text text, const std::string& suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

const std::unordered_map<std::string_view, Method>& string_methods() {
  static const std::unordered_map<std::string_view, Method> methods = {
      {"upper", [](Text t, const Arguments&) -> Value { return upper(t); }},
      {"lower", [](Text t, const Arguments&) -> Value { return lower(t); }},
      {"casefold", [](Text t, const Arguments&) -> Value { return lower(t); }},
      {"capitalize", [](Text t, const Arguments&) -> Value { return capitalize(t); }},
      {"title", [](Text t, const Arguments&) -> Value { return title(t); }},
      {"strip", [](Text t, const Arguments& a) { return strip(t, a, true, true); }},
      {"lstrip", [](Text t, const Arguments& a) { return strip(t, a, true, false); }},
      {"rstrip", [](Text t, const Arguments& a) { return strip(t, a, false, true); }},
      {"split",
       [](Text t, const Arguments& a) -> Value {
         return to_values(split(t, text_argument(a, 0, "sep", ""), int_argument(a, 1, "maxsplit", -1)));
       }},
      {"rsplit",
       [](Text t, const Arguments& a) -> Value {
         return to_values(split_from_right(t, text_argument(a, 0, "sep", ""), int_argument(a, 1, "maxsplit", -1)));
       }},
      {"splitlines", [](Text t, const Arguments&) -> Value { return to_values(split_lines(t)); }},
      {"startswith",
       [](Text t, const Arguments& a) { return any_affix(a, [&](Text affix) { return t.starts_with(affix); }); }},
      {"endswith",
       [](Text t, const Arguments& a) { return any_affix(a, [&](Text affix) { return t.ends_with(affix); }); }},
      {"replace",
       [](Text t, const Arguments& a) -> Value {
         return replace(t, text_argument(a, 0, "old", ""), text_argument(a, 1, "new", ""),
                        int_argument(a, 2, "count", -1));
       }},
      {"removeprefix",
       [](Text t, const Arguments& a) -> Value {
         const std::string prefix = text_argument(a, 0, "prefix", "");
         return t.starts_with(prefix) ? t.substr(prefix.size()) : t;
       }},
      {"removesuffix",
       [](Text t, const Arguments& a) -> Value { return without_suffix(t, text_argument(a, 0, "suffix", "")); }},
      {"find", [](Text t, const Arguments& a) { return find_text(t, a, false); }},
      {"rfind", [](Text t, const Arguments& a) { return find_text(t, a, true); }},
      {"count", [](Text t, const Arguments& a) -> Value { return count_text(t, text_argument(a, 0, "sub", "")); }},
      {"join", join},
      {"format", brace_format},
      {"partition", [](Text t, const Arguments& a) { return partition(t, a, false); }},
      {"rpartition", [](Text t, const Arguments& a) { return partition(t, a, true); }},
      {"ljust", [](Text t, const Arguments& a) { return pad(t, a, false, true); }},
      {"rjust", [](Text t, const Arguments& a) { return pad(t, a, true, false); }},
      {"center", [](Text t, const Arguments& a) { return pad(t, a, true, true); }},
      {"isdigit", [](Text t, const Arguments&) -> Value { return all_characters(t, is_digit); }},
      {"isalpha", [](Text t, const Arguments&) -> Value { return all_characters(t, is_letter); }},
      {"isalnum",
       [](Text t, const Arguments&) -> Value {
         return all_characters(t, [](std::string_view c) { return is_digit(c) || is_letter(c); });
       }},
      {"isspace",
       [](Text t, const Arguments&) -> Value {
         return all_characters(t, [](std::string_view c) { return strip_left(c).empty(); });
       }},
      {"isupper", [](Text t, const Arguments&) -> Value { return upper(t) == t && lower(t) != t; }},
      {"islower", [](Text t, const Arguments&) -> Value { return lower(t) == t && upper(t) != t; }},
  };
  return methods;
}

Values dict_items(const Dict& dict) {
  Values out;
  for (const auto& [key, value] : dict.items) out.emplace_back(Values{key, value}, List::Kind::kTuple);
  return out;
}

Value dict_method(const Value& value, std::string_view name) {
  const int holds = value.depth();
  if (name == "items")
    return {Function([value](const Arguments&) -> Value { return dict_items(value.dict()); }), holds};
  if (name == "keys") return {Function([value](const Arguments&) -> Value { return value.iterate(); }), holds};
  if (name == "values") {
    return {Function([value](const Arguments&) -> Value {
              Values out;
              for (const auto& entry : value.dict().items) out.push_back(entry.second);
              return out;
            }),
            holds};
  }
  if (name == "copy") return {Function([value](const Arguments&) { return value; }), holds};
  if (name == "get") {
    return {Function([value](const Arguments& arguments) {
              const Value* found = value.dict().find(argument_or(arguments, 0, "key", Value()));
              return found != nullptr ? *found : argument_or(arguments, 1, "default", Value());
            }),
            holds};
  }
  return Undefined{};
}

Value list_method(const Value& value, std::string_view name) {
  if (name != "index" && name != "count") return Undefined{};
  Function method = [value, name = std::string(name)](const Arguments& arguments) -> Value {
    const Values& items = value.list().items;
    const Value wanted = argument_or(arguments, 0, "value", Value());
    const auto same = [&](const Value& item) { return equal(item, wanted); };
    if (name == "count") return static_cast<int64_t>(std::count_if(items.begin(), items.end(), same));
    const auto found = std::find_if(items.begin(), items.end(), same);
    if (found == items.end())
      throw TemplateError(fmt::format("ValueError: {} is not in list", cut_text(to_repr(wanted))));
    return static_cast<int64_t>(found - items.begin());
  };
  return {std::move(method), value.depth()};
}

}  // namespace

Value find_method(const Value& value, std::string_view name) {
  if (value.is_dict()) return dict_method(value, name);
  if (value.is_list() && !value.is_generator()) return list_method(value, name);
  if (!value.is_string()) return Undefined{};
  const auto found = string_methods().find(name);
  if (found == string_methods().end()) return Undefined{};
  spend_bytes(value.bytes());
  return Function(
      [text = value.string(), method = found->second](const Arguments& arguments) { return method(text, arguments); });
}

}  // namespace lockstep::jinja
