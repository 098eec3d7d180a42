#include "lockstep/plan/freezing.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/regex.h"

namespace lockstep {
namespace {

bool begins(const std::string& key, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const auto& prefix) { return key.starts_with(prefix); });
}

bool holds(const std::string& key, const std::shared_ptr<const Regex>& pattern) {
  return pattern && !pattern->find_all(key).empty();
}

std::shared_ptr<const Regex> pattern_of(const std::string& text, const char* flag) {
  if (text.empty()) return nullptr;
  try {
    return std::make_shared<const Regex>(text, flag);
  } catch (const UserError& error) {
    throw usage_error(error.message(), "a pattern as Python's re has it");
  }
}

std::vector<std::string> keys_of(const Model& model) {
  std::vector<std::string> keys;
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      for (const auto& source : spec.sources) keys.push_back(source.key);
    }
  }
  return keys;
}

void require_prefixes(const Model& model, const std::vector<std::string>& keys, const char* flag,
                      const std::vector<std::string>& prefixes) {
  std::vector<std::string> names;
  for (const auto& block : model.blocks) names.push_back(block->name());
  for (const auto& prefix : prefixes) {
    if (std::ranges::any_of(keys, [&](const auto& key) { return key.starts_with(prefix); })) continue;
    const auto near = nearest_name(prefix, names);
    throw usage_error(fmt::format("{} {}: no parameter of this {} model begins so", flag, prefix, model.family),
                      near.empty() ? "see `lockstep plan --model DIR` for the names" : "did you mean " + near + "?");
  }
}

std::shared_ptr<const Regex> require_pattern(const Model& model, const std::vector<std::string>& keys, const char* flag,
                                             const std::string& text) {
  auto pattern = pattern_of(text, flag);
  if (!pattern || std::ranges::any_of(keys, [&](const auto& key) { return holds(key, pattern); })) return pattern;
  throw usage_error(fmt::format("{} {}: no parameter of this {} model has it in its name", flag, text, model.family),
                    fmt::format("names are like {}", keys.empty() ? "none" : keys.back()));
}

/// Where in a layer a tensor stands: "model.layers.11.mlp.up_proj.weight" -> 11, "mlp.up_proj.weight".
struct LayerPlace {
  int64_t layer = 0;
  std::string_view within;
};

std::optional<LayerPlace> place_of(std::string_view key) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = key.find(kLayers);
  if (at == std::string_view::npos || (at > 0 && key[at - 1] != '.')) return std::nullopt;
  LayerPlace place;
  const char* const end = key.data() + key.size();
  const auto [after, fault] = std::from_chars(key.data() + at + kLayers.size(), end, place.layer);
  if (fault != std::errc() || after == end || *after != '.') return std::nullopt;
  place.within = {after + 1, static_cast<size_t>(end - after - 1)};
  return place;
}

}  // namespace

Freezing::Freezing(const Model& model, FreezeChoice choice, std::set<Component> components)
    : choice_(std::move(choice)), components_(std::move(components)) {
  if (choice_.empty()) return;
  const auto keys = keys_of(model);
  require_prefixes(model, keys, "--freeze_parameters", choice_.prefixes);
  require_prefixes(model, keys, "--trainable_parameters", choice_.trainable_prefixes);
  frozen_ = require_pattern(model, keys, "--freeze_parameters_regex", choice_.regex);
  trained_ = require_pattern(model, keys, "--trainable_parameters_regex", choice_.trainable_regex);
  find_layers(model);
  int64_t all = 0, taken = 0;
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) all += spec.tied ? 0 : spec.numel();
  }
  const auto most = static_cast<int64_t>(choice_.ratio * static_cast<double>(all));
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied) continue;
      taken += spec.numel();
      if (taken > most) return;
      for (const auto& source : spec.sources) first_.insert(source.key);
    }
  }
}

void Freezing::find_layers(const Model& model) {
  auto& modules = choice_.layer_modules;
  if (choice_.layers == 0) {
    if (modules.empty() && choice_.extra_modules.empty()) return;
    throw usage_error("--freeze_trainable_modules and --freeze_extra_modules: no layers are chosen",
                      "--freeze_trainable_layers 2 trains the last two");
  }
  if (std::ranges::find(modules, "all") != modules.end()) modules.clear();
  int64_t count = 0;
  std::set<std::string> parts, others;
  for (const auto& block : model.blocks) {
    if (block->component() != Component::kLlm) continue;
    for (const auto& spec : block->params()) {
      for (const auto& source : spec.sources) {
        const auto place = place_of(source.key);
        if (place) count = std::max(count, place->layer + 1);
        if (place) parts.emplace(place->within.substr(0, place->within.find('.')));
        if (!place) others.insert(source.key);
      }
    }
  }
  const auto require = [&](const char* flag, const std::vector<std::string>& words,
                           const std::set<std::string>& names) {
    for (const auto& word : words) {
      if (std::ranges::any_of(names, [&](const auto& name) { return name.find(word) != std::string::npos; })) continue;
      throw usage_error(fmt::format("{} {}: this {} model has no such part", flag, word, model.family),
                        "there is: " + join(std::vector(names.begin(), names.end()), ", "));
    }
  };
  require("--freeze_trainable_modules", modules, parts);
  require("--freeze_extra_modules", choice_.extra_modules, others);
  first_layer_ = choice_.layers > 0 ? std::max<int64_t>(0, count - choice_.layers) : 0;
  end_layer_ = choice_.layers > 0 ? count : std::min(count, -choice_.layers);
}

bool Freezing::is_of_layers(const Block& block, const std::string& key) const {
  if (choice_.layers == 0 || block.component() != Component::kLlm) return true;
  if (std::ranges::any_of(choice_.extra_modules, [&](const auto& part) { return key.find(part) != std::string::npos; }))
    return true;
  const auto place = place_of(key);
  if (!place || place->layer < first_layer_ || place->layer >= end_layer_) return false;
  return choice_.layer_modules.empty() ||
         std::ranges::any_of(choice_.layer_modules, [&](const auto& part) { return place->within.starts_with(part); });
}

bool Freezing::trains(const Block& block, const std::string& key) const {
  if (begins(key, choice_.trainable_prefixes) || holds(key, trained_)) return true;
  return !components_.contains(block.component()) && !first_.contains(key) && !begins(key, choice_.prefixes) &&
         !holds(key, frozen_) && is_of_layers(block, key);
}

bool Freezing::trains(const Block& block, const ParamSpec& spec) const {
  if (choice_.empty()) return !components_.contains(block.component());
  const auto trained =
      std::ranges::count_if(spec.sources, [&](const ParamSource& source) { return trains(block, source.key); });
  if (trained == 0 || trained == std::ssize(spec.sources)) return trained > 0;
  std::vector<std::string> keys;
  for (const auto& source : spec.sources) keys.push_back(source.key);
  throw usage_error(fmt::format("{} are computed as one, and {} of these {} are to be frozen", join(keys, ", "),
                                std::ssize(keys) - trained, keys.size()),
                    "freeze or train them together: --freeze_parameters, --trainable_parameters and their patterns");
}

}  // namespace lockstep
