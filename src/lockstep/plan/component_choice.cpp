#include "lockstep/plan/component_choice.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/model/leave_out.h"

namespace lockstep {
namespace {

const std::map<std::string, Component> kAliases = {{"vit", Component::kVision}, {"aligner", Component::kProjector}};

Component component_from(const std::string& flag, const std::string& word) {
  for (const Component component : all_components()) {
    if (word == component_name(component)) return component;
  }
  if (const auto alias = kAliases.find(word); alias != kAliases.end()) return alias->second;
  const std::string near = nearest_name(word, split(names_of(all_components(), ","), ','));
  throw usage_error(fmt::format("{}: expected a list of {}, found \"{}\"", flag, names_of(all_components()), word),
                    near.empty() ? "lockstep plan --model DIR shows the components of a model"
                                 : fmt::format("did you mean {}?", near));
}

std::string words_of(const std::set<Component>& components) {
  return names_of({components.begin(), components.end()}, ",");
}

struct Switch {
  const char* flag;
  Component component;
  const std::optional<bool>& value;
  bool otherwise;
};

std::array<Switch, 3> switches(const ComponentChoice& flags) {
  return {{{"--freeze_llm", Component::kLlm, flags.freeze_llm, false},
           {"--freeze_vit", Component::kVision, flags.freeze_vit, true},
           {"--freeze_aligner", Component::kProjector, flags.freeze_aligner, true}}};
}

double rate_from(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && std::isfinite(rate) && rate >= 0) return rate;
  throw usage_error(fmt::format("{}: expected a learning rate of at least 0, found \"{}\"", flag, text));
}

/// ms-swift's spelling of "not given".
bool is_none(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text.empty() || text == "none";
}

}  // namespace

const std::vector<Component>& all_components() {
  static const std::vector<Component> all = {Component::kLlm, Component::kVision, Component::kProjector};
  return all;
}

std::set<Component> components_from(const std::string& flag, const std::vector<std::string>& words) {
  std::set<Component> found;
  for (const auto& list : words) {
    for (const auto& word : split(list, ',')) found.insert(component_from(flag, word));
  }
  return found;
}

std::set<Component> ComponentChoice::frozen() const {
  const auto trained = components_from("--train", train), listed = components_from("--freeze", freeze);
  for (const Component component : trained) {
    if (!listed.contains(component)) continue;
    throw usage_error(fmt::format("--train {} and --freeze {} contradict each other about {}", words_of(trained),
                                  words_of(listed), component_name(component)),
                      "name it in one of them");
  }
  std::set<Component> out = listed;
  for (const Component component : all_components()) {
    if (!train.empty() && !trained.contains(component)) out.insert(component);
  }
  const bool lists = !train.empty() || !freeze.empty();
  for (const auto& [flag, component, value, otherwise] : switches(*this)) {
    if (!lists && value.value_or(otherwise)) out.insert(component);
    if (!lists || !value || *value == out.contains(component)) continue;
    throw usage_error(fmt::format("{} {}: {} says that {} is {}", flag, *value, train.empty() ? "--freeze" : "--train",
                                  component_name(component), *value ? "trained" : "frozen"),
                      fmt::format("leave {} out: the lists alone say it", flag));
  }
  return out;
}

std::map<Component, std::pair<std::string, double>> ComponentChoice::rates() const {
  std::map<Component, std::pair<std::string, double>> out;
  const auto add = [&](Component component, const std::string& flag, double rate) {
    const auto [at, fresh] = out.emplace(component, std::pair(flag, rate));
    if (fresh || at->second.second == rate) return;
    throw usage_error(
        fmt::format("{} and {} give {} two learning rates", at->second.first, flag, component_name(component)),
        "give one of them");
  };
  if (!is_none(vit_lr)) add(Component::kVision, "--vit_lr " + vit_lr, rate_from("--vit_lr", vit_lr));
  if (!is_none(aligner_lr)) {
    add(Component::kProjector, "--aligner_lr " + aligner_lr, rate_from("--aligner_lr", aligner_lr));
  }
  for (const auto& list : component_lr) {
    for (const auto& entry : split(list, ',')) {
      const size_t equals = entry.find('=');
      if (equals == std::string::npos) {
        throw usage_error(fmt::format("--component_lr: expected NAME=RATE, found \"{}\"", entry),
                          "--component_lr vision=1e-5,projector=1e-4");
      }
      const std::string flag = "--component_lr " + entry;
      add(component_from("--component_lr", entry.substr(0, equals)), flag, rate_from(flag, entry.substr(equals + 1)));
    }
  }
  return out;
}

std::map<Component, double> ComponentChoice::rate_ratios(double learning_rate) const {
  const auto still = frozen();
  std::map<Component, double> ratios;
  for (const auto& [component, given] : rates()) {
    const auto& [flag, rate] = given;
    if (still.contains(component)) {
      throw usage_error(fmt::format("{}: {} is frozen and learns nothing", flag, component_name(component)),
                        fmt::format("train it (--train llm,{}), or leave the rate out", component_name(component)));
    }
    if (!(learning_rate > 0)) {
      throw usage_error(fmt::format("{}: --learning_rate is 0, and the rates of components follow its schedule", flag),
                        fmt::format("give the rate as --learning_rate, and --train {}", component_name(component)));
    }
    ratios[component] = rate / learning_rate;
  }
  return ratios;
}

void ComponentChoice::check_unbuilt(const std::set<Component>& unbuilt) const {
  const auto refuse = [&](const std::string& flag, Component component) {
    throw usage_error(
        fmt::format("{}: {} is not built (--no_build {})", flag, component_name(component), words_of(unbuilt)),
        fmt::format("leave {} out of one of them", component_name(component)));
  };
  const auto rated = rates();
  for (const Component component : unbuilt) {
    if (components_from("--train", train).contains(component)) refuse("--train " + join(train, ","), component);
    if (rated.contains(component)) refuse(rated.at(component).first, component);
    for (const auto& [flag, of, value, otherwise] : switches(*this)) {
      if (of == component && value && !*value) refuse(std::string(flag) + " false", component);
    }
  }
}

void ComponentChoice::check_against(const Model& model) const {
  auto present = components_of(model);
  for (const auto& left : model.left_out) present.push_back(left.component);
  std::set<Component> unbuilt;
  for (const auto& left : model.left_out) unbuilt.insert(left.component);
  check_unbuilt(unbuilt);
  const auto check_named = [&](const std::string& flag, const std::set<Component>& named) {
    for (const Component component : named) {
      if (std::ranges::find(present, component) != present.end()) continue;
      throw usage_error(fmt::format("{}: expected components of this {} model ({}), found {}", flag, model.family,
                                    names_of(present), component_name(component)),
                        "leave it out: the model has no such part");
    }
  };
  check_named("--train " + join(train, ","), components_from("--train", train));
  check_named("--freeze " + join(freeze, ","), components_from("--freeze", freeze));
  for (const auto& [component, given] : rates()) check_named(given.first, {component});
}

}  // namespace lockstep
