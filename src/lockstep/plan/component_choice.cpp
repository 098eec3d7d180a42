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

using Group = std::vector<Component>;

const Group kTowers{Component::kVision, Component::kAudio};
const Group kProjectors{Component::kProjector, Component::kAudioProjector};

/// ms-swift's words. A model has what it has of a group.
const std::map<std::string, Group> kAliases = {
    {"vit", kTowers}, {"aligner", kProjectors}, {"generator", {Component::kTalker}}};

Group group_from(const std::string& flag, const std::string& word) {
  for (const Component component : all_components()) {
    if (word == component_name(component)) return {component};
  }
  if (const auto alias = kAliases.find(word); alias != kAliases.end()) return alias->second;
  const std::string near = nearest_name(word, split(names_of(all_components(), ","), ','));
  throw usage_error(fmt::format("{}: expected a list of {}, found \"{}\"", flag, names_of(all_components()), word),
                    near.empty() ? "lockstep plan --model DIR shows the components of a model"
                                 : fmt::format("did you mean {}?", near));
}

/// The words of lists, in order.
std::vector<std::string> words_in(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const auto& list : lists) {
    for (const auto& word : split(list, ',')) words.push_back(word);
  }
  return words;
}

std::string words_of(const std::set<Component>& components) {
  return names_of({components.begin(), components.end()}, ",");
}

struct Switch {
  const char* flag;
  const Group group;
  const std::optional<bool>& value;
  bool otherwise;
};

std::array<Switch, 3> switches(const ComponentChoice& flags) {
  return {{{"--freeze_llm", {Component::kLlm}, flags.freeze_llm, false},
           {"--freeze_vit", kTowers, flags.freeze_vit, true},
           {"--freeze_aligner", kProjectors, flags.freeze_aligner, true}}};
}

bool holds_any(const std::set<Component>& components, const Group& group) {
  return std::ranges::any_of(group, [&](Component one) { return components.contains(one); });
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
  static const std::vector<Component> all = {Component::kLlm,   Component::kVision,         Component::kProjector,
                                             Component::kAudio, Component::kAudioProjector, Component::kTalker};
  return all;
}

std::set<Component> components_from(const std::string& flag, const std::vector<std::string>& words) {
  std::set<Component> found;
  for (const auto& word : words_in(words)) {
    const Group group = group_from(flag, word);
    found.insert(group.begin(), group.end());
  }
  return found;
}

std::set<Component> ComponentChoice::frozen() const {
  const auto trained = components_from("--train", train), listed = components_from("--freeze", freeze);
  for (const Component component : trained) {
    if (!listed.contains(component)) continue;
    throw usage_error(fmt::format("--train {} and --freeze {} contradict each other about {}",
                                  join(words_in(train), ","), join(words_in(freeze), ","), component_name(component)),
                      "name it in one of them");
  }
  std::set<Component> out = listed;
  for (const Component component : all_components()) {
    if (!train.empty() && !trained.contains(component)) out.insert(component);
  }
  // A talker learns from rows with speech alone: only by name.
  if (!trained.contains(Component::kTalker)) out.insert(Component::kTalker);
  const bool lists = !train.empty() || !freeze.empty();
  for (const auto& [flag, group, value, otherwise] : switches(*this)) {
    if (!lists && value.value_or(otherwise)) out.insert(group.begin(), group.end());
    if (!lists || !value) continue;
    const bool all_frozen = std::ranges::all_of(group, [&](Component one) { return out.contains(one); });
    const bool contradicts =
        *value ? holds_any(trained, group) || !holds_any(out, group) : holds_any(listed, group) || all_frozen;
    if (!contradicts) continue;
    throw usage_error(fmt::format("{} {}: {} says that {} is {}", flag, *value, train.empty() ? "--freeze" : "--train",
                                  component_name(group.front()), *value ? "trained" : "frozen"),
                      fmt::format("leave {} out: the lists alone say it", flag));
  }
  return out;
}

std::map<Component, ComponentChoice::Rate> ComponentChoice::rates() const {
  std::map<Component, Rate> out;
  const auto add = [&](const Group& group, const std::string& flag, double rate) {
    for (const Component component : group) {
      const auto [at, fresh] = out.emplace(component, Rate{flag, rate, group});
      if (fresh || at->second.rate == rate) continue;
      throw usage_error(
          fmt::format("{} and {} give {} two learning rates", at->second.flag, flag, component_name(component)),
          "give one of them");
    }
  };
  if (!is_none(vit_lr)) add(kTowers, "--vit_lr " + vit_lr, rate_from("--vit_lr", vit_lr));
  if (!is_none(aligner_lr)) add(kProjectors, "--aligner_lr " + aligner_lr, rate_from("--aligner_lr", aligner_lr));
  for (const auto& entry : words_in(component_lr)) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      throw usage_error(fmt::format("--component_lr: expected NAME=RATE, found \"{}\"", entry),
                        "--component_lr vision=1e-5,projector=1e-4");
    }
    const std::string flag = "--component_lr " + entry;
    add(group_from("--component_lr", entry.substr(0, equals)), flag, rate_from(flag, entry.substr(equals + 1)));
  }
  return out;
}

std::map<Component, double> ComponentChoice::rate_ratios(double learning_rate) const {
  const auto still = frozen();
  std::map<Component, double> ratios;
  for (const auto& [component, given] : rates()) {
    if (std::ranges::all_of(given.group, [&](Component one) { return still.contains(one); })) {
      throw usage_error(fmt::format("{}: {} is frozen and learns nothing", given.flag, component_name(component)),
                        fmt::format("train it (--train llm,{}), or leave the rate out", component_name(component)));
    }
    if (!(learning_rate > 0)) {
      throw usage_error(
          fmt::format("{}: --learning_rate is 0, and the rates of components follow its schedule", given.flag),
          fmt::format("give the rate as --learning_rate, and --train {}", component_name(component)));
    }
    if (!still.contains(component)) ratios[component] = given.rate / learning_rate;
  }
  return ratios;
}

void ComponentChoice::check_unbuilt(const std::set<Component>& unbuilt, const std::set<Component>& absent) const {
  const auto refuse = [&](const std::string& flag, Component component) {
    throw usage_error(
        fmt::format("{}: {} is not built (--no_build {})", flag, component_name(component), words_of(unbuilt)),
        fmt::format("leave {} out of one of them", component_name(component)));
  };
  const auto first_of = [&](const Group& group) {
    return *std::ranges::find_if(group, [&](Component one) { return unbuilt.contains(one); });
  };
  const auto gone = [&](const Group& group) {
    return holds_any(unbuilt, group) &&
           std::ranges::all_of(group, [&](Component one) { return unbuilt.contains(one) || absent.contains(one); });
  };
  for (const auto& word : words_in(train)) {
    const Group group = group_from("--train", word);
    if (gone(group)) refuse("--train " + join(train, ","), first_of(group));
  }
  for (const auto& [component, given] : rates()) {
    if (gone(given.group)) refuse(given.flag, first_of(given.group));
  }
  for (const auto& [flag, group, value, otherwise] : switches(*this)) {
    if (value && !*value && gone(group)) refuse(std::string(flag) + " false", first_of(group));
  }
}

void ComponentChoice::check_against(const Model& model) const {
  const auto built = components_of(model);
  std::set<Component> present(built.begin(), built.end()), unbuilt;
  for (const auto& left : model.left_out) unbuilt.insert(left.component);
  present.insert(unbuilt.begin(), unbuilt.end());
  std::set<Component> absent;  // of a group a model has what it has
  for (const Component component : all_components()) {
    if (!present.contains(component)) absent.insert(component);
  }
  const auto check_named = [&](const std::string& flag, const Group& group) {
    if (holds_any(present, group)) return;
    throw usage_error(fmt::format("{}: expected components of this {} model ({}), found {}", flag, model.family,
                                  names_of(Group(present.begin(), present.end())), component_name(group.front())),
                      "leave it out: the model has no such part");
  };
  for (const auto& word : words_in(train)) check_named("--train " + join(train, ","), group_from("--train", word));
  for (const auto& word : words_in(freeze)) check_named("--freeze " + join(freeze, ","), group_from("--freeze", word));
  for (const auto& [component, given] : rates()) check_named(given.flag, given.group);
  check_unbuilt(unbuilt, absent);
}

}  // namespace lockstep
