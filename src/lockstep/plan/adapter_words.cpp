#include "lockstep/plan/adapter_words.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

/// Whether a key of rank_pattern or alpha_pattern means a module.
bool means(const std::string& key, const std::string& module) {
  return LoraConfig{.r = 0, .rank_pattern = {{key, 1}}}.rank_of(module) > 0;
}

}  // namespace

std::vector<std::string> leaves_of(const std::vector<ModuleOfModel>& modules) {
  std::set<std::string> leaves;
  for (const auto& module : modules) leaves.insert(split(module.name, '.').back());
  return {leaves.begin(), leaves.end()};
}

UserError matches_nothing(const std::string& flag, const std::string& name, const std::vector<std::string>& leaves,
                          const std::string& example) {
  const std::string near = nearest_name(split(name, '.').back(), leaves);
  return usage_error(
      fmt::format("{} {}: no module of the model is called so", flag, name),
      fmt::format("{}there are {}; whole names look like {}",
                  near.empty() ? "" : fmt::format("did you mean {}? ", near), join(leaves, ", "), example));
}

void check_expressions(const LoraConfig& config) {
  const auto check_one = [](const char* flag, const std::string& expression, const auto& use) {
    try {
      (void)use();
    } catch (const UserError& error) {  // said of a file's expressions, as a checkpoint's fault
      throw usage_error(fmt::format("{} {}: {}", flag, expression, error.message()), error.hint());
    }
  };
  const std::string& targets = config.targets.regex;
  if (!targets.empty()) check_one("--target_regex", targets, [&] { return config.targets.match("a"); });
  for (const auto& [key, rank] : config.rank_pattern) check_one("--rank_pattern", key, [&] { return means(key, "a"); });
  for (const auto& [key, a] : config.alpha_pattern) check_one("--alpha_pattern", key, [&] { return means(key, "a"); });
}

void check_targets(const LoraConfig& config, const std::vector<ModuleOfModel>& all) {
  for (const auto& name : config.targets.names) {
    const ModuleNames one{.names = {name}, .regex = {}};
    if (std::ranges::any_of(all, [&](const auto& module) { return one.match(module.name); })) continue;
    throw matches_nothing("--target_modules", name, leaves_of(all), all.front().name);
  }
}

void check_further_words(const LoraConfig& config, const std::vector<ModuleOfModel>& all,
                         const std::vector<AdaptedModule>& adapted) {
  for (const auto& name : config.exclude.names) {
    const ModuleNames one{.names = {name}, .regex = {}};
    if (std::ranges::any_of(all, [&](const auto& module) { return one.match(module.name); })) continue;
    throw matches_nothing("--exclude_modules", name, leaves_of(all), all.front().name);
  }
  const auto require = [&](const char* flag, const std::string& word, const auto& is_meant) {
    if (std::ranges::any_of(adapted, [&](const auto& one) { return is_meant(one.module.name); })) return;
    std::vector<ModuleOfModel> modules;
    for (const auto& one : adapted) modules.push_back(one.module);
    throw usage_error(fmt::format("{} {}: no module that is adapted is meant by it", flag, word),
                      modules.empty()
                          ? ""
                          : fmt::format("adapted are {}, as {}", join(leaves_of(modules), ", "), modules.front().name));
  };
  for (const auto& [key, rank] : config.rank_pattern) {
    require("--rank_pattern", key, [&](const std::string& module) { return means(key, module); });
  }
  for (const auto& [key, alpha] : config.alpha_pattern) {
    require("--alpha_pattern", key, [&](const std::string& module) { return means(key, module); });
  }
  for (const int64_t layer : config.layers) {
    LoraConfig one = config;
    one.layers = {layer};
    require("--layers_to_transform", std::to_string(layer),
            [&](const std::string& module) { return one.lists_layer_of(module); });
  }
}

}  // namespace lockstep
