#include "lockstep/dialect/fsdp_config.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/dialect/flag_value.h"

namespace lockstep {

FsdpConfig FsdpConfig::from(const Json& config) {
  FsdpConfig out;
  if (!config.is_object()) return out;
  const auto say_stage = [&](const std::string& word) {
    // By number: torch's, and accelerate's own for the two that shard within a node.
    if (word.find("hybrid") != std::string::npos || word == "4" || word == "5") out.hybrid = true;
    const bool whole = word == "no_shard" || word == "3",
               keeps = word == "shard_grad_op" || word == "2" || is_false(word);
    out.stage = whole ? 0 : keeps ? 2 : 3;
  };
  std::string strategy;  // counts before reshard_after_forward, whose older name it is
  for (const auto& [key, value] : config.items()) {
    const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
    const std::string word = lowered(value.is_string() ? value.get<std::string>() : value.dump());
    if (value.is_null() || name == "version" || name.starts_with('_')) continue;
    if (name == "sharding_strategy") {
      strategy = word;
    } else if (name == "reshard_after_forward") {
      say_stage(word);
    } else if (name == "cpu_offload" || name == "offload_params") {
      out.offloads = out.offloads || is_true(word);
    } else if (name == "activation_checkpointing") {
      out.recomputes = is_true(word);
    } else {
      out.unused.push_back(key);
    }
  }
  if (!strategy.empty()) say_stage(strategy);
  return out;
}

std::string FsdpConfig::unused_note() const {
  return unused.empty()
             ? ""
             : "without effect, as wrapping, prefetching and saving are done in one way here: " + join(unused, ", ");
}

}  // namespace lockstep
