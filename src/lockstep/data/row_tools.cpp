#include "lockstep/data/row_tools.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/python_literal.h"
#include "lockstep/data/row_media.h"  // field_error
#include "lockstep/text/jinja/value.h"

namespace lockstep {
namespace {

constexpr const char* kCall = R"({"name": ..., "arguments": {...}})";

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

/// {"name", "arguments"} in either order, arguments an object or the text of one.
Json call_of(const Json& function, const std::string& where, const std::string& field) {
  const auto name = function.is_object() ? function.find("name") : function.end();
  if (!function.is_object() || name == function.end() || !name->is_string())
    throw field_error(where, field, kCall, function);
  Json call = {{"name", *name}, {"arguments", Json::object()}};
  const char* key = function.contains("arguments") ? "arguments" : "parameters";
  if (const auto given = function.find(key); given != function.end() && !given->is_null()) {
    const std::string at = fmt::format("{}.{}", field, key);
    const bool none = given->is_string() && is_blank(given->get<std::string>());
    Json arguments = none ? Json::object() : literal_value(*given, where, at, "a JSON object of arguments");
    if (!arguments.is_object()) throw field_error(where, at, "a JSON object of arguments", arguments);
    call["arguments"] = std::move(arguments);
  }
  return call;
}

Json typed_call(Json call, const Json& source) {
  Json typed = {{"type", "function"}, {"function", std::move(call)}};
  if (const auto id = source.find("id"); id != source.end() && id->is_string()) typed["id"] = *id;
  return typed;
}

/// Anthropic calls a tool's parameters its input_schema.
Json typed_tool(Json tool, const std::string& where, const std::string& field) {
  tool = literal_value(tool, where, field, "a function as JSON");
  const bool typed = tool.is_object() && tool.contains("function");
  const Json& function = typed ? tool.at("function") : tool;
  if (!function.is_object() || !function.contains("name") || !function.at("name").is_string())
    throw field_error(where, field, R"({"type": "function", "function": {"name": ...}})", tool);
  if (typed) {
    if (!tool.contains("type")) tool = {{"type", "function"}, {"function", tool.at("function")}};
    return tool;
  }
  Json made = Json::object();
  for (const auto& [key, value] : tool.items()) {
    if (key == "type" && value.is_string()) continue;
    if (key == "input_schema" || key == "parameters") {
      made["parameters"] = value;
    } else {
      made.get_ref<Json::object_t&>().emplace_back(key, value);  // no key stands there twice
    }
  }
  return {{"type", "function"}, {"function", std::move(made)}};
}

}  // namespace

Json literal_value(const Json& value, const std::string& where, const std::string& field, const std::string& expected) {
  if (!value.is_string()) return value;
  Json out;
  JsonFault fault;
  const auto& text = value.get_ref<const std::string&>();
  if (try_parse_literal(text, out, fault)) return out;
  const UserError error = field_error(where, field, expected, value);
  // The library's words without its own prefix, "[json.exception...] parse error at line 1, column 5: ".
  const size_t prefix = fault.why.starts_with('[') ? fault.why.find(": ") : std::string::npos;
  throw data_error(fmt::format("{} (byte {}: {})", error.message(), fault.byte,
                               prefix == std::string::npos ? fault.why : fault.why.substr(prefix + 2)));
}

Json read_tools(const Json& value, const std::string& where) {
  if (value.is_null() || (value.is_string() && is_blank(value.get<std::string>()))) return Json::array();
  Json tools = literal_value(value, where, "tools", "a list of functions as JSON");
  if (tools.is_null()) return Json::array();
  if (tools.is_object()) tools = Json::array({std::move(tools)});
  if (!tools.is_array()) throw field_error(where, "tools", "a list of functions", tools);
  for (size_t i = 0; i < tools.size(); ++i)
    tools[i] = typed_tool(std::move(tools[i]), where, fmt::format("tools[{}]", i));
  return tools;
}

Json read_tool_calls(const Json& value, const std::string& where, const std::string& field) {
  const Json list = literal_value(value, where, field, "a list of calls as JSON");
  if (!list.is_array()) throw field_error(where, field, "a list of calls", list);
  Json calls = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    const bool typed = list[i].is_object() && list[i].contains("function");
    calls.push_back(typed_call(
        typed ? call_of(list[i].at("function"), where, at + ".function") : call_of(list[i], where, at), list[i]));
  }
  return calls;
}

Json read_call_turn(const Json& content, const std::string& where, const std::string& field) {
  const Json value = literal_value(content, where, field, fmt::format("{} as JSON", kCall));
  return read_tool_calls(value.is_array() ? value : Json::array({value}), where, field);
}

Json read_tool_use(const Json& part, const std::string& where, const std::string& field) {
  const Json call = {{"name", part.value("name", Json())}, {"arguments", part.value("input", Json::object())}};
  return typed_call(call_of(call, where, field), part);
}

std::string python_dumps(const Json& value) { return jinja::to_json_text(jinja::Value::from_json(value), {}); }

}  // namespace lockstep
