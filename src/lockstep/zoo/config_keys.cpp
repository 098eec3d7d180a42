#include "lockstep/zoo/config_keys.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/tensor/activations.h"

namespace lockstep {

UserError wrong_key(const HfConfig& config, const char* key, const std::string& expected) {
  const Json& values = config.json();
  const std::string found = values.is_object() && values.contains(key)
                                ? cut_text(values.at(key).dump(-1, ' ', false, Json::error_handler_t::replace))
                                : "none";
  return checkpoint_error(fmt::format("{}: {}: expected {}, found {}", config.where(), key, expected, found));
}

std::string read_activation(const HfConfig& config, const char* key, const std::string& usual) {
  const std::string name = config.text(key, usual);
  if (std::ranges::find(kActivationNames, name) != kActivationNames.end()) return name;
  throw wrong_key(config, key, fmt::format("one of {}", fmt::join(kActivationNames, ", ")));
}

}  // namespace lockstep
