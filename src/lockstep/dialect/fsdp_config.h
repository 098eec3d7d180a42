// A table of FSDP's settings: transformers' --fsdp_config, ms-swift's files and accelerate's YAML spell its keys with and
// without "fsdp_".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

struct FsdpConfig {
  std::optional<int> stage;  // of ZeRO, by reshard_after_forward or sharding_strategy; nullopt: it does not say
  bool hybrid = false;       // shards within a node, each node with all
  bool offloads = false;     // parameters, and what belongs to them, to host memory
  bool recomputes = false;   // activations
  std::vector<std::string> unused = {};  // keys that are none of these

  /// `config` that is no object says nothing. Source: transformers 5.23 TrainingArguments._process_fsdp_args, accelerate 1.15
  /// FullyShardedDataParallelPlugin.
  static FsdpConfig from(const Json& config);
  /// "without effect, …: auto_wrap_policy"; empty: all is used.
  std::string unused_note() const;
};

}  // namespace lockstep
