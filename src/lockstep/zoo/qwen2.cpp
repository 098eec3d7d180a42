// Qwen2 and Qwen2.5 text models. Source: transformers 5.23 models/qwen2.
#include <nlohmann/json.hpp>

#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/text_family.h"

namespace lockstep {
namespace {

void finish_fresh(Json& config, const TextSize&) {
  config.erase("head_dim");
  config["rope_theta"] = 1000000.0;
  config["use_sliding_window"] = false;
}

}  // namespace

Family qwen2_family() {
  return text_family({.name = "qwen2",
                      .architecture = "Qwen2ForCausalLM",
                      .chat_template = chatml_template(),
                      .finish_fresh = finish_fresh});
}

}  // namespace lockstep
