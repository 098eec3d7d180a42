// Qwen3 text models: queries and keys are normed head by head. Source: transformers 5.23 models/qwen3.
#include <nlohmann/json.hpp>

#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/text_family.h"

namespace lockstep {
namespace {

void finish_fresh(Json& config, const TextSize& size) {
  config["head_dim"] = 2 * size.hidden / size.heads;  // wider than the model, as the released ones are
  config["rope_theta"] = 1000000.0;
  config["attention_bias"] = false;
  config["use_sliding_window"] = false;
}

}  // namespace

Family qwen3_family() {
  return text_family({.name = "qwen3",
                      .architecture = "Qwen3ForCausalLM",
                      .chat_template = chatml_template(),
                      .finish_fresh = finish_fresh});
}

}  // namespace lockstep
