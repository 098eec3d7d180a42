#include "lockstep/zoo/own_head.h"

#include <optional>
#include <ranges>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/model/stored_head.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

constexpr const char* kTies = "tie_word_embeddings";

/// The objects of a config that may say so, each before what stands in it: a key that is added to one moves those.
std::vector<Json*> parts_of(Json& config) {
  std::vector<Json*> parts{&config};
  const auto add = [&](Json& of, const char* key) {
    const auto found = of.find(key);
    if (found != of.end() && found->is_object()) parts.push_back(&*found);
  };
  for (const char* key : {"text_config", "llm_config", "thinker_config"}) add(config, key);
  if (config.contains("thinker_config") && config["thinker_config"].is_object()) {
    add(config["thinker_config"], "text_config");
  }
  return parts;
}

bool says_tied(Json config) {
  for (const Json* part : parts_of(config)) {
    if (part->value(kTies, Json()) == true) return true;
  }
  return false;
}

std::optional<StoredHead> stored_head_of(const HfConfig& config) {
  try {
    const Model model = family_of(config).build(config);
    // The folder's own: a head is never another's, and no token's row is added yet.
    return find_stored_head(model, Weights::open(config.folder()));
  } catch (const Error&) {
    return std::nullopt;  // a config without weights is planned with; what is wrong is told where it is needed
  }
}

}  // namespace

Json untied_config(Json config) {
  for (Json* part : parts_of(config) | std::views::reverse) (*part)[kTies] = false;
  return config;
}

HfConfig with_own_head(const HfConfig& config) {
  if (config.folder().empty() || !says_tied(config.json())) return config;
  const auto found = stored_head_of(config);
  if (!found || found->equal) return config;
  if (!found->same_shape) {
    return config.with(Json::object(),
                       fmt::format("{} is stored beside {}, to which config.json ties it, and is of another shape: it "
                                   "is not read",
                                   found->head, found->embedding));
  }
  return config.with(
      untied_config(config.json()),
      fmt::format(
          "{} is stored and differs from {}, to which config.json ties it: the head that is stored counts, as in "
          "transformers 5 (transformers 4 took the embedding); what is saved says \"{}\": false",
          found->head, found->embedding, kTies));
}

}  // namespace lockstep
