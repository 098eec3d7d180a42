#include "lockstep/text/json_keys.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

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
  if (!object.is_object())
    throw checkpoint_error(fmt::format("{}: expected an object, found {}", where, object.type_name()));
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  if (!found->is_boolean()) throw wrong_type(where, key, "true or false", *found);
  return found->get<bool>();
}

int32_t id_of(const Json& value, const std::string& where) {
  const bool unsigned_one = value.is_number_unsigned();
  const bool fits = unsigned_one                ? value.get<uint64_t>() <= uint64_t{INT32_MAX}
                    : value.is_number_integer() ? value.get<int64_t>() >= 0 && value.get<int64_t>() <= INT32_MAX
                                                : false;
  if (fits) return value.get<int32_t>();
  throw checkpoint_error(
      fmt::format("{}: expected the id of a token, 0 to {}, found {}", where, INT32_MAX, cut_text(value.dump())));
}

int64_t number_key(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = required(object, key, where);
  if (!value.is_number_integer()) throw wrong_type(where, key, "a whole number", value);
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    throw wrong_type(where, key, "a whole number of 64 bits", value);
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
  return checkpoint_error(fmt::format("{}: type \"{}\" is not supported", where, cut_text(type)),
                          fmt::format("supported: {}", supported));
}

}  // namespace lockstep
