#include "lockstep/text/json_keys.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

const Json& required(const Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object())
    throw checkpoint_error(fmt::format("{}: expected an object, found {}", where, object.type_name()));
  const auto found = object.find(key);
  if (found == object.end()) throw checkpoint_error(fmt::format("{}: key \"{}\" is missing", where, key));
  return *found;
}

UserError wrong_type(const std::string& where, const std::string& key, std::string_view expected, const Json& found) {
  return checkpoint_error(fmt::format("{}: \"{}\": expected {}, found {}", where, key, expected, found.type_name()));
}

}  // namespace

std::string text_key(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = required(object, key, where);
  if (!value.is_string()) throw wrong_type(where, key, "a string", value);
  return value.get<std::string>();
}

bool flag_key(const Json& object, const std::string& key, bool fallback, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  if (!found->is_boolean()) throw wrong_type(where, key, "true or false", *found);
  return found->get<bool>();
}

int64_t number_key(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = required(object, key, where);
  if (!value.is_number_integer()) throw wrong_type(where, key, "a whole number", value);
  return value.get<int64_t>();
}

const Json& list_key(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = required(object, key, where);
  if (!value.is_array()) throw wrong_type(where, key, "a list", value);
  return value;
}

Pattern pattern_key(const Json& object, const std::string& where) {
  const Json& value = required(object, "pattern", where);
  if (value.is_object() && value.contains("String")) return {text_key(value, "String", where), false};
  if (value.is_object() && value.contains("Regex")) return {text_key(value, "Regex", where), true};
  throw wrong_type(where, "pattern", "{\"String\": …} or {\"Regex\": …}", value);
}

UserError unsupported(const std::string& where, std::string_view type, std::string_view supported) {
  return checkpoint_error(fmt::format("{}: type \"{}\" is not supported", where, type),
                          fmt::format("supported: {}", supported));
}

}  // namespace lockstep
