// What a config.json drops at random in training, and no block here does: a loss differs from transformers' by it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/model/hf_config.h"

namespace lockstep {

/// "vision_config.drop_path_rate 0.1", of each key that is above 0; those of heads that are no part of a model that answers
/// (classifier_dropout) are not meant.
std::vector<std::string> dropout_keys(const HfConfig& config);

}  // namespace lockstep
