#include "lockstep/zoo/read_activation.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/activations.h"

namespace lockstep {

std::string read_activation(const HfConfig& config, const char* key, const std::string& usual) {
  const std::string name = config.text(key, usual);
  if (std::ranges::find(kActivationNames, name) != kActivationNames.end()) return name;
  throw checkpoint_error(fmt::format("{}: {}: expected one of {}, found \"{}\"", config.where(), key,
                                     fmt::join(kActivationNames, ", "), name));
}

}  // namespace lockstep
