#include "lockstep/base/json_fields.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMaxText = 8192;
const Json kNone;

bool is_whole(const Json& value) { return value.is_boolean() || value.is_number_integer(); }

/// A number that T can hold, whole or cut to a whole one; or no number at all.
template <typename T>
bool is_in_range(const Json& value) {
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
    if (value.is_number_integer()) return std::in_range<T>(value.get<int64_t>());
    if (!value.is_number_float()) return true;
    const double end = std::ldexp(1.0, std::numeric_limits<T>::digits), number = value.get<double>();
    return number < end && number > (std::is_signed_v<T> ? -end - 1 : -1);
  }
  return true;
}

/// False: of another kind.
template <typename T>
bool take_distrusted(const Json& found, T& value) {
  if constexpr (std::same_as<T, Json>) {
    value = found;
    return true;
  } else if constexpr (std::same_as<T, std::string>) {
    if (found.is_string()) value = found.get_ref<const std::string&>().substr(0, kMaxText);
    return found.is_string();
  } else if constexpr (std::same_as<T, double>) {
    if (found.is_number()) value = found.get<double>();
    return found.is_number();
  } else {
    if (!is_whole(found) || !is_in_range<T>(found)) return false;
    // In range, whatever its sign is as a number of 64 bits.
    value = static_cast<T>(found.is_boolean() ? found.get<bool>() : found.get<int64_t>());
    return true;
  }
}

template <typename T>
void take_leniently(const Json& found, T& value) {
  if constexpr (std::same_as<T, Json>) {
    value = found;
  } else if constexpr (std::same_as<T, std::string> || std::same_as<T, bool>) {
    if (std::same_as<T, bool> ? found.is_boolean() : found.is_string()) found.get_to(value);
  } else if (found.is_number()) {
    if (is_in_range<T>(found)) found.get_to(value);
  } else if constexpr (std::same_as<T, double>) {
    value = std::nan("");
  }
}

}  // namespace

void JsonFields::fail(const char* key, const std::exception& error) const {
  if (where_.empty()) throw;
  const bool named = dynamic_cast<const Json::type_error*>(&error) == nullptr;  // a missing key is in the message
  throw checkpoint_error(
      fmt::format("{}: {}{}", where_, error.what(), named ? "" : fmt::format(" (\"{}\")", key ? key : name_)),
      "was it edited by hand?");
}

void JsonFields::refuse(const char* key) const {
  throw Error(ExitCode::kCommunication,
              fmt::format("{}: \"{}\" is missing or of another kind", where_, key ? key : name_));
}

const Json* JsonFields::raw(const char* key) {
  if (writing()) return nullptr;
  if (rule_ == JsonReading::kStrict) {
    try {
      return key ? &in_->at(key) : &in_->at(next_++);
    } catch (const Json::exception& error) {
      fail(key, error);
    }
  }
  const Json* found = nullptr;
  if (key == nullptr) {
    if (in_->is_array() && next_ < in_->size()) found = &(*in_)[next_++];
  } else if (has(key)) {
    found = &*in_->find(key);
  }
  if (found == nullptr && rule_ == JsonReading::kDistrustful) refuse(key);
  return found;
}

bool JsonFields::has(const char* key) const { return in_ != nullptr && in_->contains(key); }

template <typename T>
void JsonFields::take(const char* key, const Json& found, T& value) const {
  if (rule_ == JsonReading::kLenient) return take_leniently(found, value);
  if (rule_ == JsonReading::kDistrustful) {
    if (!take_distrusted(found, value)) refuse(key);
    return;
  }
  try {
    if (!is_in_range<T>(found)) {
      throw Json::type_error::create(302, "type must be a whole number in its range, but is " + found.dump(), nullptr);
    }
    found.get_to(value);
  } catch (const Json::exception& error) {
    fail(key, error);
  }
}

template <typename T>
void JsonFields::leaf(const char* key, T& value) {
  if (writing()) {
    *inside(key).out_ = value;
  } else if (const Json* found = raw(key)) {
    take(key, *found, value);
  }
}

void JsonFields::operator()(const char* key, bool& value) { leaf(key, value); }
void JsonFields::operator()(const char* key, int& value) { leaf(key, value); }
void JsonFields::operator()(const char* key, int64_t& value) { leaf(key, value); }
void JsonFields::operator()(const char* key, uint64_t& value) { leaf(key, value); }
void JsonFields::operator()(const char* key, double& value) { leaf(key, value); }
void JsonFields::operator()(const char* key, std::string& value) { leaf(key, value); }
void JsonFields::operator()(const char* key, Json& value) { leaf(key, value); }

JsonFields JsonFields::inside(const char* key) {
  if (writing()) return JsonFields(key ? (*out_)[key] : out_->emplace_back());
  const Json* found = raw(key);
  JsonFields inner(found ? *found : kNone, rule_, where_);
  inner.name_ = key ? key : name_;
  return inner;
}

bool JsonFields::is_null(const char* key, bool of_record) {
  const Json* found = raw(key);
  const bool passed_over = rule_ == JsonReading::kLenient && of_record && found != nullptr && !found->is_object();
  return found == nullptr || found->is_null() || passed_over;
}

void JsonFields::null(const char* key) {
  if (writing()) *inside(key).out_ = nullptr;
}

template <typename Wanted>
void JsonFields::other_kind() const {
  if (rule_ == JsonReading::kLenient) return;
  if (rule_ == JsonReading::kDistrustful) refuse(name_);
  try {
    (void)in_->get<Wanted>();
  } catch (const Json::exception& error) {
    fail(name_, error);
  }
}

std::vector<std::string> JsonFields::begin_table(bool of_numbers) {
  std::vector<std::string> names;
  if (writing()) {
    *out_ = Json::object();
  } else if (in_->is_object()) {
    for (const auto& [name, value] : in_->items()) {
      if (rule_ != JsonReading::kLenient || !of_numbers || value.is_number()) names.push_back(name);
    }
  } else {
    other_kind<std::map<std::string, bool>>();
  }
  return names;
}

size_t JsonFields::begin_list(size_t count, size_t most) {
  if (writing()) {
    *out_ = Json::array();
    return count;
  }
  if (in_->is_array() && in_->size() <= most) return in_->size();
  other_kind<std::vector<bool>>();
  return 0;
}

}  // namespace lockstep
