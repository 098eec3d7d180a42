// Which key of config.json gave a dimension: a block declares sizes, not where they came from, so errors infer it.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/base/json.h"

namespace lockstep {

/// "config.json text_config.intermediate_size" for the dimension `dim` of tensor `key`, whose expected size is `size`;
/// a product of heads and head size reads "… num_attention_heads x head_dim". "" when no key has that value.
std::string config_key_of(const Json& config, const std::string& key, size_t dim, int64_t size);

}  // namespace lockstep
