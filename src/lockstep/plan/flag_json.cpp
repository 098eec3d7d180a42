#include "lockstep/plan/flag_json.h"

#include <filesystem>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string text_of(const std::string& flag, const std::string& value) {
  if (is_inline_object(value)) return value;
  std::error_code failure;
  if (!std::filesystem::exists(value, failure)) {
    throw usage_error(fmt::format("{} {}: no such file", flag, value),
                      "give the path of a JSON file, or the JSON itself");
  }
  try {
    return read_text(value);
  } catch (const Error& e) {
    throw usage_error(flag + " " + e.message(), e.hint());
  }
}

Json parsed(const std::string& text, const std::string& where, const std::string& example) {
  const JsonLimits limits{.refuses_twice_named = true};  // a parser keeps the last of two in silence
  Json json;
  JsonFault fault;
  if (try_parse_json(text, json, fault, limits)) return json;
  if (fault.kind == JsonFault::Kind::kTwice)
    throw usage_error(fmt::format("{}: {}", where, fault.why), "keep one of the two lines");
  try {
    return parse_json(text, where, limits);  // throws, with line and column
  } catch (const Error& e) {
    throw usage_error(e.message(), fmt::format("for example '{}', in single quotes for a shell", example));
  }
}

}  // namespace

bool is_inline_object(std::string_view value) {
  const size_t first = value.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && value[first] == '{';
}

std::string where_of_flag(const std::string& flag, const std::string& value) {
  return is_inline_object(value) ? flag : value;
}

Json object_of_flag(const std::string& flag, const std::string& value, const std::string& example) {
  const std::string where = where_of_flag(flag, value);
  const std::string text = text_of(flag, value);
  Json json = parsed(text, where, example);
  if (!json.is_object()) throw usage_error(where + ": expected a JSON object", "for example " + example);
  return json;
}

}  // namespace lockstep
