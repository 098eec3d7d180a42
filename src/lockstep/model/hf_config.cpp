#include "lockstep/model/hf_config.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kShownBytes = 60;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "…";
  return fmt::format("{} ({})", text, value.type_name());
}

UserError wrong_kind(const std::string& where, const std::string& key, const char* expected, const Json& found) {
  return checkpoint_error(fmt::format("{}: \"{}\": expected {}, found {}", where, key, expected, shown(found)));
}

const Json* present(const Json& value, const std::string& key) {
  const auto it = value.find(key);
  return it == value.end() || it->is_null() ? nullptr : &*it;
}

/// An integer, or a float that stands for one (some tools write 4096.0).
std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::abs(number) > 1e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

HfConfig HfConfig::load(const ModelPlace& place) {
  const auto path = place.folder / "config.json";
  HfConfig config(read_json(path), path.string());
  config.place_ = place;
  return config;
}

HfConfig::HfConfig(Json value, std::string where)
    : value_(std::make_shared<const Json>(std::move(value))), where_(std::move(where)) {
  if (!value_->is_object()) {
    throw checkpoint_error(fmt::format("{}: expected an object, found {}", where_, shown(*value_)));
  }
}

HfConfig HfConfig::with(const Json& keys) const {
  Json changed = *value_;
  changed.update(keys);
  HfConfig out(std::move(changed), where_);
  out.place_ = place_;
  out.differs_ = differs_ || out.json() != json();
  out.notices_ = notices_;
  return out;
}

HfConfig HfConfig::with(const Json& keys, std::string notice) const {
  HfConfig out = with(keys);
  out.notices_.push_back(std::move(notice));
  return out;
}

HfConfig::~HfConfig() = default;
HfConfig::HfConfig(const HfConfig&) = default;
HfConfig& HfConfig::operator=(const HfConfig&) = default;

bool HfConfig::has(const std::string& key) const { return present(*value_, key) != nullptr; }

HfConfig HfConfig::at(const std::string& key) const {
  const Json* found = present(*value_, key);
  if (found != nullptr && !found->is_object()) throw wrong_kind(where_, key, "an object", *found);
  return {found == nullptr ? Json::object() : *found, where_ + " " + key};
}

int64_t HfConfig::integer(const std::string& key) const {
  const Json* found = present(*value_, key);
  if (found != nullptr) return integer(key, 0);
  std::vector<std::string> keys;
  for (const auto& [name, ignored] : value_->items()) keys.push_back(name);
  const std::string nearest = nearest_name(key, keys);
  throw checkpoint_error(
      fmt::format("{}: \"{}\": expected an integer, found no such key ({} keys there)", where_, key, keys.size()),
      nearest.empty() ? "" : fmt::format("the nearest key is \"{}\"", nearest));
}

int64_t HfConfig::integer(const std::string& key, int64_t otherwise) const {
  const Json* found = present(*value_, key);
  if (found == nullptr) return otherwise;
  const auto number = as_integer(*found);
  if (!number) throw wrong_kind(where_, key, "an integer", *found);
  return *number;
}

int64_t HfConfig::size(const std::string& key, int64_t otherwise, SizeRange range) const {
  const int64_t value = integer(key, otherwise);
  if (value >= range.least && value <= range.most) return value;
  throw checkpoint_error(
      fmt::format("{}: \"{}\": expected {} to {}, found {}", where_, key, range.least, range.most, value));
}

double HfConfig::positive(const std::string& key, double otherwise) const {
  const double value = number(key, otherwise);
  if (value > 0) return value;
  throw checkpoint_error(fmt::format("{}: \"{}\": expected a number above 0, found {}", where_, key, value));
}

double HfConfig::number(const std::string& key, double otherwise) const {
  const Json* found = present(*value_, key);
  if (found == nullptr) return otherwise;
  if (!found->is_number()) throw wrong_kind(where_, key, "a number", *found);
  return found->get<double>();
}

bool HfConfig::flag(const std::string& key, bool otherwise) const {
  const Json* found = present(*value_, key);
  if (found == nullptr) return otherwise;
  if (!found->is_boolean()) throw wrong_kind(where_, key, "true or false", *found);
  return found->get<bool>();
}

std::string HfConfig::text(const std::string& key, const std::string& otherwise) const {
  const Json* found = present(*value_, key);
  if (found == nullptr) return otherwise;
  if (!found->is_string()) throw wrong_kind(where_, key, "a string", *found);
  return found->get<std::string>();
}

std::vector<std::string> HfConfig::texts(const std::string& key) const {
  const Json* found = present(*value_, key);
  std::vector<std::string> out;
  if (found == nullptr) return out;
  if (!found->is_array()) throw wrong_kind(where_, key, "a list of strings", *found);
  for (const auto& item : *found) {
    if (!item.is_string()) throw wrong_kind(where_, key, "a list of strings", *found);
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<int64_t> HfConfig::integers(const std::string& key) const {
  const Json* found = present(*value_, key);
  std::vector<int64_t> out;
  if (found == nullptr) return out;
  if (!found->is_array()) return {integer(key, 0)};
  for (const auto& item : *found) {
    const auto number = as_integer(item);
    if (!number) throw wrong_kind(where_, key, "a list of integers", *found);
    constexpr int64_t kMost = int64_t{1} << 40;  // so that they can be added
    if (*number < -kMost || *number > kMost) throw wrong_kind(where_, key, "a list of smaller integers", *found);
    out.push_back(*number);
  }
  return out;
}

const Json& HfConfig::json() const { return *value_; }

}  // namespace lockstep
