// Llama 2, 3, 3.1 and what is shaped like them. Source: transformers 5.23 models/llama.
#include <nlohmann/json.hpp>

#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/text_family.h"

namespace lockstep {
namespace {

void finish_fresh(Json& config, const TextSize&) {
  config["rope_theta"] = 500000.0;
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
}

}  // namespace

Family llama_family() {
  return text_family({.name = "llama",
                      .architecture = "LlamaForCausalLM",
                      .chat_template = llama3_template(),
                      .finish_fresh = finish_fresh});
}

}  // namespace lockstep
