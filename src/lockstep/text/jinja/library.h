// What templates can call: filters, tests, methods of values, global functions, and the operators behind the syntax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/jinja/value.h"

namespace lockstep::jinja {

/// `value | name(arguments)`. Throws TemplateError, also for a filter that does not exist.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
/// `value is name(arguments)`. Throws TemplateError, also for a test that does not exist.
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);

using Filter = Value (*)(const Value&, const Arguments&);
/// Filters over sequences; null when there is none of this name.
Filter find_sequence_filter(std::string_view name);

/// value.name and value["name"]: methods before keys, or keys before methods. Undefined when there is neither.
Value get_attribute(const Value& value, const std::string& name);
Value get_item(const Value& value, const Value& key);
/// value[start:stop:step]; none stands for what was left out.
Value get_slice(const Value& value, const Value& start, const Value& stop, const Value& step);

/// A bound method ("abc".upper), or undefined.
Value find_method(const Value& value, std::string_view name);

/// "+", "-", "*", "/", "//", "%", "**", "~".
Value binary_operator(std::string_view op, const Value& left, const Value& right);
Value negate(const Value& value);

/// range, dict, namespace, raise_exception, strftime_now.
NamedValues global_functions();

// Arguments of filters and methods: the default where none was given. Throw TemplateError for another type.
std::string text_argument(const Arguments& arguments, size_t index, std::string_view name, std::string_view fallback);
int64_t int_argument(const Arguments& arguments, size_t index, std::string_view name, int64_t fallback);
bool flag_argument(const Arguments& arguments, size_t index, std::string_view name, bool fallback);
Value argument_or(const Arguments& arguments, size_t index, std::string_view name, const Value& fallback);
/// The arguments behind the first `count` positional ones, and the named ones.
Arguments arguments_after(const Arguments& arguments, size_t count);

}  // namespace lockstep::jinja
