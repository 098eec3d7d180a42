// The tests behind `is`, and the global functions.
#include <ctime>
#include <functional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/library.h"
#include "lockstep/text/jinja/strings.h"

namespace lockstep::jinja {
namespace {

using Test = bool (*)(const Value&, const Arguments&);

const Value& other(const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("TypeError: this test needs an argument");
  return arguments.positional[0];
}

bool is_same(const Value& value, const Arguments& arguments) {
  const Value& with = other(arguments);
  if (value.identity() != nullptr || with.identity() != nullptr) return value.identity() == with.identity();
  return value.type_name() == with.type_name() && equal(value, with);
}

bool is_iterable(const Value& value, const Arguments&) {
  return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
}

int64_t remainder(const Value& value, int64_t by) { return binary_operator("%", value, by).to_int(); }

const std::unordered_map<std::string_view, Test>& comparison_tests() {
  static const Test eq = [](const Value& v, const Arguments& a) { return equal(v, other(a)); };
  static const Test ne = [](const Value& v, const Arguments& a) { return !equal(v, other(a)); };
  static const Test lt = [](const Value& v, const Arguments& a) { return compare(v, other(a)) < 0; };
  static const Test le = [](const Value& v, const Arguments& a) { return compare(v, other(a)) <= 0; };
  static const Test gt = [](const Value& v, const Arguments& a) { return compare(v, other(a)) > 0; };
  static const Test ge = [](const Value& v, const Arguments& a) { return compare(v, other(a)) >= 0; };
  static const std::unordered_map<std::string_view, Test> tests = {
      {"equalto", eq}, {"eq", eq}, {"==", eq}, {"ne", ne},          {"!=", ne}, {"lt", lt}, {"lessthan", lt}, {"<", lt},
      {"le", le},      {"<=", le}, {"gt", gt}, {"greaterthan", gt}, {">", gt},  {"ge", ge}, {">=", ge},
  };
  return tests;
}

const std::unordered_map<std::string_view, Test>& type_tests() {
  static const std::unordered_map<std::string_view, Test> tests = {
      {"defined", [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v, const Arguments&) { return v.is_undefined(); }},
      {"none", [](const Value& v, const Arguments&) { return v.is_none(); }},
      {"boolean", [](const Value& v, const Arguments&) { return v.is_bool(); }},
      {"true", [](const Value& v, const Arguments&) { return v.is_bool() && v.truth(); }},
      {"false", [](const Value& v, const Arguments&) { return v.is_bool() && !v.truth(); }},
      {"integer", [](const Value& v, const Arguments&) { return v.is_int(); }},
      {"float", [](const Value& v, const Arguments&) { return v.is_float(); }},
      {"number", [](const Value& v, const Arguments&) { return v.is_number(); }},
      {"string", [](const Value& v, const Arguments&) { return v.is_string(); }},
      {"mapping", [](const Value& v, const Arguments&) { return v.is_dict(); }},
      {"iterable", is_iterable},
      {"sequence", [](const Value& v, const Arguments& a) { return is_iterable(v, a) && !v.is_generator(); }},
      {"callable", [](const Value& v, const Arguments&) { return v.is_function(); }},
      {"sameas", is_same},
      {"in", [](const Value& v, const Arguments& a) { return contains(other(a), v); }},
      {"odd", [](const Value& v, const Arguments&) { return remainder(v, 2) == 1; }},
      {"even", [](const Value& v, const Arguments&) { return remainder(v, 2) == 0; }},
      {"divisibleby", [](const Value& v, const Arguments& a) { return remainder(v, other(a).to_int()) == 0; }},
      {"lower", [](const Value& v,
                   const Arguments&) { return lower(to_text(v)) == to_text(v) && upper(to_text(v)) != to_text(v); }},
      {"upper", [](const Value& v,
                   const Arguments&) { return upper(to_text(v)) == to_text(v) && lower(to_text(v)) != to_text(v); }},
  };
  return tests;
}

Value range(const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("TypeError: range expected at least 1 argument, got 0");
  const bool one = arguments.positional.size() == 1;
  const int64_t start = one ? 0 : arguments.positional[0].to_int();
  const int64_t stop = arguments.positional[one ? 0 : 1].to_int();
  const int64_t step = int_argument(arguments, 2, "step", 1);
  if (step == 0) throw TemplateError("ValueError: range() arg 3 must not be zero");
  constexpr size_t kMostItems = 100'000;  // as Jinja's sandbox limits it
  Values out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (out.size() == kMostItems) throw TemplateError("OverflowError: range is longer than 100000");
    out.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return out;
}

Dict make_dict(const Arguments& arguments) {
  Dict dict;
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) {
    dict = arguments.positional[0].dict();
  } else if (!arguments.positional.empty()) {
    for (const Value& pair : arguments.positional[0].iterate()) dict.set(get_item(pair, 0), get_item(pair, 1));
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

Value strftime_now(const Arguments& arguments) {
  const std::string format = text_argument(arguments, 0, "format", "%Y-%m-%d");
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  spend_bytes(256 + 4 * format.size());
  std::string text(256 + 4 * format.size(), '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return text;
}

}  // namespace

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  const Deeper deeper;
  for (const auto* tests : {&type_tests(), &comparison_tests()}) {
    const auto found = tests->find(name);
    if (found != tests->end()) return found->second(value, arguments);
  }
  throw TemplateError(fmt::format("the test \"{}\" is not supported", cut_text(name)));
}

NamedValues global_functions() {
  return {
      {"range", Function(range)},
      {"dict", Function([](const Arguments& a) -> Value { return make_dict(a); })},
      {"namespace", Function([](const Arguments& a) -> Value {
         auto space = std::make_shared<Namespace>(Namespace{make_dict(a)});
         spend_bytes(sizeof(Namespace));
         if (Budget* budget = Budget::current()) budget->keep(space);
         return space;
       })},
      {"raise_exception",
       Function([](const Arguments& a) -> Value { throw TemplateError(to_text(argument_or(a, 0, "message", ""))); })},
      {"strftime_now", Function(strftime_now)},
  };
}

}  // namespace lockstep::jinja
