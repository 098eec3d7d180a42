#include "lockstep/zoo/text_family.h"

#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/read_text_config.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep {
namespace {

Model build(const HfConfig& config, const std::string& name) {
  const TextConfig text = read_text_config(config, name);
  Model model;
  model.family = name;
  add_token_embedding(model, {}, text);
  add_decoder(model, {}, text);
  // transformers' model without its head (AutoModel), as models of embeddings are published.
  model.dialects = {{"base model", {{"model.*", "*"}}}};
  return model;
}

std::vector<std::pair<std::string, Json>> fresh_files(const TextFamily& text, const std::string& size, int64_t vocab) {
  static const std::map<std::string, TextSize> sizes{
      {"tiny", {128, 352, 4, 4, 2, 2048}}, {"small", {384, 1024, 12, 6, 2, 4096}}, {"demo", {192, 512, 4, 6, 2, 2048}}};
  const auto found = sizes.find(size);
  if (found == sizes.end()) return {};
  Json config = fresh_text_config(text.name, text.architecture, found->second, vocab);
  text.finish_fresh(config, found->second);
  return {{"config.json", std::move(config)}, {"chat_template.jinja", std::string(text.chat_template)}};
}

}  // namespace

Family text_family(const TextFamily& text) {
  return {.name = text.name,
          .architectures = {text.architecture},
          .build = [name = text.name](const HfConfig& config) { return build(config, name); },
          .processor = load_text_processor,
          .rows_of_hf = text_rows_of_hf,
          .fresh_files = [text](const std::string& size, int64_t vocab) { return fresh_files(text, size, vocab); }};
}

}  // namespace lockstep
