#include "lockstep/base/env.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {

Env::Env(std::map<std::string, std::string> values) : values_(std::move(values)) {}

Env Env::process() {
  std::map<std::string, std::string> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string pair = *entry;
    const size_t equals = pair.find('=');
    if (equals != std::string::npos) values.emplace(pair.substr(0, equals), pair.substr(equals + 1));
  }
  return Env(std::move(values));
}

bool Env::has(const std::string& name) const { return text(name).has_value(); }

std::optional<std::string> Env::text(const std::string& name) const {
  const auto it = values_.find(name);
  if (it == values_.end() || it->second.empty()) return std::nullopt;
  return it->second;
}

std::optional<int64_t> Env::integer(const std::string& name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size()) {
    throw usage_error(fmt::format("environment variable {}: expected an integer, found \"{}\"", name, *value));
  }
  return number;
}

std::optional<bool> Env::flag(const std::string& name) const {
  auto value = text(name);
  if (!value) return std::nullopt;
  std::transform(value->begin(), value->end(), value->begin(), [](unsigned char c) { return std::tolower(c); });
  if (*value == "1" || *value == "true" || *value == "yes" || *value == "on") return true;
  if (*value == "0" || *value == "false" || *value == "no" || *value == "off") return false;
  throw usage_error(
      fmt::format("environment variable {}: expected 1/0, true/false, yes/no or on/off, found \"{}\"", name, *value));
}

const std::map<std::string, std::string>& Env::all() const { return values_; }

}  // namespace lockstep
