// Mistral: Llama whose tokens look back a window only. Source: transformers 5.23 models/mistral.
#include <nlohmann/json.hpp>

#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/text_family.h"

namespace lockstep {
namespace {

void finish_fresh(Json& config, const TextSize& size) {
  config["sliding_window"] = size.max_positions / 32;  // few enough that a short text passes them
}

}  // namespace

Family mistral_family() {
  return text_family({.name = "mistral",
                      .architecture = "MistralForCausalLM",
                      .chat_template = mistral_template(),
                      .finish_fresh = finish_fresh});
}

}  // namespace lockstep
