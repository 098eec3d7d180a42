#include "lockstep/plan/settled_words.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/text/regex.h"

namespace lockstep {
namespace {

/// Modules that belong together under one beginning: "model.language_model".
std::string stem_of(const std::string& name) {
  static constexpr const char* kLists[] = {".layers.", ".layer.", ".blocks."};
  for (const char* list : kLists) {
    if (const size_t at = name.find(list); at != std::string::npos) return name.substr(0, at);
  }
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// One expression for the chosen modules, as ms-swift writes it: ^(stem(?=\.).*\.(leaf|leaf))$ for each stem.
std::string expression_for(const std::set<std::string>& chosen) {
  std::map<std::string, std::set<std::string>> leaves;
  for (const auto& name : chosen) leaves[stem_of(name)].insert(escape_regex(name.substr(name.rfind('.') + 1)));
  std::vector<std::string> stems;
  for (const auto& [stem, names] : leaves) {
    stems.push_back(fmt::format("{}(?=\\.).*\\.({})", escape_regex(stem), fmt::join(names, "|")));
  }
  return stems.size() == 1 ? "^(" + stems[0] + ")$" : "^(" + join(stems, "|") + ")$";
}

template <typename T, typename Of, typename Says>
void settle_pattern(std::vector<std::pair<std::string, T>>& pattern, const std::vector<WordedModule>& modules, T usual,
                    const Of& of, const Says& says) {
  const auto says_all = [&] {
    return std::ranges::all_of(modules, [&](const auto& one) { return says(one.name) == of(one); });
  };
  // A name ends others too: then it has to begin where they do.
  for (const char* begin : {"", "^"}) {
    if (says_all()) return;
    pattern.clear();
    for (const auto& one : modules) {
      if (of(one) != usual) pattern.emplace_back(begin + escape_regex(one.name), of(one));
    }
  }
}

}  // namespace

void settle_targets(LoraConfig& config, const ModuleNames& asked, const std::set<std::string>& chosen,
                    const std::vector<std::string>& all) {
  if (chosen.empty()) return;
  const auto fits = [&] {
    return std::ranges::all_of(all,
                               [&](const auto& name) { return config.targets_module(name) == chosen.contains(name); });
  };
  config.targets = asked;
  if (asked.names != std::vector<std::string>{"all-linear"} && fits()) return;
  config.exclude = {};
  config.layers.clear();
  config.layers_pattern.clear();
  config.targets = {.names = {}, .regex = expression_for(chosen)};
  if (fits()) return;
  config.targets = {.names = {chosen.begin(), chosen.end()}, .regex = {}};
}

void settle_patterns(LoraConfig& config, const std::vector<WordedModule>& modules) {
  settle_pattern(
      config.rank_pattern, modules, config.r, [](const WordedModule& one) { return one.rank; },
      [&](const std::string& name) { return config.rank_of(name); });
  settle_pattern(
      config.alpha_pattern, modules, config.alpha, [](const WordedModule& one) { return one.alpha; },
      [&](const std::string& name) { return config.alpha_of(name); });
}

void settle_saved(LoraConfig& config, const std::set<std::string>& saved, const std::vector<std::string>& all) {
  const bool fits =
      std::ranges::all_of(all, [&](const auto& name) { return config.saves(name) == saved.contains(name); });
  if (fits) return;
  std::set<std::string> modules;
  for (const auto& name : saved) modules.insert(name.substr(0, name.rfind('.')));
  config.modules_to_save.assign(modules.begin(), modules.end());
}

}  // namespace lockstep
