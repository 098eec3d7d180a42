#include "lockstep/plan/freezing.h"

#include <algorithm>
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

}  // namespace

Freezing::Freezing(const Model& model, FreezeChoice choice, std::set<Component> components)
    : choice_(std::move(choice)), components_(std::move(components)) {
  if (choice_.empty()) return;
  const auto keys = keys_of(model);
  require_prefixes(model, keys, "--freeze_parameters", choice_.prefixes);
  require_prefixes(model, keys, "--trainable_parameters", choice_.trainable_prefixes);
  frozen_ = require_pattern(model, keys, "--freeze_parameters_regex", choice_.regex);
  trained_ = require_pattern(model, keys, "--trainable_parameters_regex", choice_.trainable_regex);
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

bool Freezing::trains(const Block& block, const std::string& key) const {
  if (begins(key, choice_.trainable_prefixes) || holds(key, trained_)) return true;
  return !components_.contains(block.component()) && !first_.contains(key) && !begins(key, choice_.prefixes) &&
         !holds(key, frozen_);
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
