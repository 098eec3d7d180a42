// Qwen3 text models: queries and keys are normed head by head. Source: transformers 5.23 models/qwen3.
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
  const TextConfig text = read_text_config(config, "qwen3");
  Model model;
  model.family = "qwen3";
  add_token_embedding(model, {}, text);
  add_decoder(model, {}, text);
  return model;
}

std::vector<std::pair<std::string, Json>> fresh_files(const std::string& size, int64_t vocab) {
  static const std::map<std::string, TextSize> sizes{
      {"tiny", {128, 352, 4, 4, 2, 2048}}, {"small", {384, 1024, 12, 6, 2, 4096}}, {"demo", {192, 512, 4, 6, 2, 2048}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  Json config = fresh_text_config("qwen3", "Qwen3ForCausalLM", found->second, vocab);
  config["head_dim"] =
      2 * found->second.hidden / found->second.heads;  // wider than the model, as the released ones are
  config["rope_theta"] = 1000000.0;
  config["attention_bias"] = false;
  config["use_sliding_window"] = false;
  return {{"config.json", std::move(config)}, {"chat_template.jinja", std::string(chatml_template())}};
}

}  // namespace

Family qwen3_family() {
  return {.name = "qwen3",
          .architectures = {"Qwen3ForCausalLM"},
          .build = build,
          .processor = load_text_processor,
          .rows_of_hf = text_rows_of_hf,
          .fresh_files = fresh_files};
}

}  // namespace lockstep
