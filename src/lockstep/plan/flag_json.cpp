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
  try {
    return parse_json(text, where);
  } catch (const Error& e) {
    throw usage_error(e.message(), fmt::format("for example '{}', in single quotes for a shell", example));
  }
}

/// A parser keeps the last of two members of one name in silence.
void refuse_duplicates(const std::string& text, const std::string& where) {
  std::set<std::string> seen;
  std::optional<std::string> twice;  // "" is a name too
  std::ignore = Json::parse(text, [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  });
  if (twice)
    throw usage_error(fmt::format("{}: \"{}\" stands there twice", where, *twice), "keep one of the two lines");
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
  refuse_duplicates(text, where);
  return json;
}

}  // namespace lockstep
