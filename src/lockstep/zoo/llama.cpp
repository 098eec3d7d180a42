// Llama 2, 3, 3.1 and what is shaped like them. Source: transformers 5.23 models/llama.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/fresh_config.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep {
namespace {

Model build(const HfConfig& config) {
  const TextConfig text = read_text_config(config, "llama");
  Model model;
  model.family = "llama";
  add_token_embedding(model, {}, text);
  add_decoder(model, {}, text);
  return model;
}

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, TextSize> sizes{
      {"tiny", {128, 352, 4, 4, 2, 2048}}, {"small", {384, 1024, 12, 6, 2, 4096}}, {"demo", {192, 512, 4, 6, 2, 2048}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  Json config = fresh_text_config("llama", "LlamaForCausalLM", found->second, vocab);
  config["rope_theta"] = 500000.0;
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  return {{"config.json", std::move(config)}, {"chat_template.jinja", std::string(llama3_template())}};
}

}  // namespace

Family llama_family() {
  return {.name = "llama",
          .architectures = {"LlamaForCausalLM"},
          .build = build,
          .processor = load_text_processor,
          .rows_of_hf = text_rows_of_hf,
          .fresh_files = fresh_files};
}

}  // namespace lockstep
