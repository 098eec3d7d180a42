// Mistral: Llama whose tokens look back a window only. Source: transformers 5.23 models/mistral.
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
  const TextConfig text = read_text_config(config, "mistral");
  Model model;
  model.family = "mistral";
  add_token_embedding(model, {}, text);
  add_decoder(model, {}, text);
  return model;
}

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, TextSize> sizes{
      {"tiny", {128, 352, 4, 4, 2, 2048}}, {"small", {384, 1024, 12, 6, 2, 4096}}, {"demo", {192, 512, 4, 6, 2, 2048}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  Json config = fresh_text_config("mistral", "MistralForCausalLM", found->second, vocab);
  config["sliding_window"] = found->second.max_positions / 32;  // few enough that a short text passes them
  return {{"config.json", std::move(config)}, {"chat_template.jinja", std::string(mistral_template())}};
}

}  // namespace

Family mistral_family() {
  return {.name = "mistral",
          .architectures = {"MistralForCausalLM"},
          .build = build,
          .processor = load_text_processor,
          .rows_of_hf = text_rows_of_hf,
          .fresh_files = fresh_files};
}

}  // namespace lockstep
