#include "lockstep/zoo/registry.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/zoo/families.h"
#include "lockstep/zoo/own_head.h"
#include "lockstep/zoo/token_rows.h"

namespace lockstep {
namespace {

std::string listed() {
  std::string names;
  for (const auto& family : families()) names += (names.empty() ? "" : ", ") + family.name;
  return names;
}

const Family* find_by(const std::string& word) {
  for (const auto& family : families()) {
    if (family.name == word || std::ranges::find(family.architectures, word) != family.architectures.end()) {
      return &family;
    }
  }
  return nullptr;
}

/// Models that look like a family of ours by another of their names, or that people take for one.
struct NotBuilt {
  const char* word;  // an architecture, or a model_type
  const char* what;
  const char* instead;
};
constexpr NotBuilt kNotBuilt[] = {
    {"LlavaQwenForCausalLM", "a LLaVA-NeXT or OneVision over Qwen",
     "take a LLaVA 1.5 (its authors' folder or llava-hf's), or another family"},
    {"LlavaMptForCausalLM", "a LLaVA over MPT", "take a LLaVA 1.5 (its authors' folder or llava-hf's)"},
};

void refuse_not_built(const std::string& word, const HfConfig& config) {
  const auto* known = std::ranges::find_if(kNotBuilt, [&](const NotBuilt& one) { return word == one.word; });
  if (known == std::end(kNotBuilt)) return;
  throw checkpoint_error(fmt::format("{}: expected a model of a family that Lockstep builds ({}), found {}: {}",
                                     config.where(), listed(), word, known->what),
                         known->instead);
}

const Family& by_words(const HfConfig& config) {
  auto words = config.texts("architectures");
  words.push_back(config.text("model_type", ""));
  std::string found;
  for (const auto& word : words) {
    refuse_not_built(word, config);
    if (const Family* family = find_by(word)) {
      if (is_of(*family, config)) return *family;
      throw checkpoint_error(fmt::format("{}: {}: expected {}, found {}", config.where(), word, family->unlike.expected,
                                         family->unlike.of(config)),
                             "other models of this name are not built (docs/add_a_model.md)");
    }
    if (!word.empty()) found += (found.empty() ? "" : ", ") + word;
  }
  throw checkpoint_error(
      fmt::format("{}: expected architectures or model_type of a family that Lockstep knows ({}), found {}",
                  config.where(), listed(), found.empty() ? "neither key" : found),
      "a checkpoint of another family needs its own file in zoo/ (docs/add_a_model.md)");
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table{qwen2_family(),      llama_family(),         llava_family(),
                                         qwen2_5_vl_family(), internvl_family(),      mistral_family(),
                                         qwen3_family(),      minicpm_v_2_6_family(), minicpm_o_2_6_family(),
                                         omnilmm_family(),    qwen2_5_omni_family()};
  return table;
}

HfConfig load_config(const ModelPlace& place) {
  const HfConfig config = HfConfig::load(place);
  for (const auto& family : families()) {
    if (!family.elsewhere.join) continue;
    if (auto joined = family.elsewhere.join(config)) return with_token_rows(with_own_head(*joined));
  }
  const std::string said = join(place.joint.said(), ", ");
  if (said.empty()) return with_token_rows(with_own_head(config));
  throw usage_error(
      fmt::format(
          "{}: expected a Llama or Mistral with --vision_tower, or a LLaVA as its authors write it, found {} in {}",
          said, cut_text(config.json().value("architectures", Json()).dump()), config.where()),
      place.vision_tower.empty() ? "leave them out: config.json says what this model is; or name a --vision_tower"
                                 : "leave them out: config.json says what this model is");
}

bool is_of(const Family& family, const HfConfig& config) {
  return !family.unlike.of || family.unlike.of(config).empty();
}

const Family& family_of(const HfConfig& config) {
  const Family& family = by_words(config);
  const std::string tower = config.place().vision_tower.string();
  if (tower.empty() || (family.elsewhere.tensors && !family.elsewhere.tensors(config).empty())) return family;
  throw usage_error(
      fmt::format("--vision_tower {}: expected a model whose tower stands in another folder, found {} in {}",
                  cut_text(tower), family.name, config.where()),
      "leave it out: all of this model stands in its folder");
}

Weights open_weights(const Family& family, const HfConfig& config) {
  Weights weights = Weights::open(config.folder());
  if (family.elsewhere.tensors) {
    for (const auto& part : family.elsewhere.tensors(config)) weights.borrow(part);
  }
  if (family.elsewhere.made) {
    for (auto& tensor : family.elsewhere.made(config)) weights.make(std::move(tensor));
  }
  add_token_rows(weights, family, config);
  return weights;
}

const Family& family_named(const std::string& name) {
  if (const Family* family = find_by(name)) return *family;
  std::vector<std::string> names;
  for (const auto& family : families()) names.push_back(family.name);
  const std::string nearest = nearest_name(name, names);
  throw usage_error(fmt::format("family \"{}\": expected one of {}", name, listed()),
                    nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
}

}  // namespace lockstep
