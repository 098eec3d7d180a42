#include "lockstep/model/leave_out.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

using Slots = std::set<std::string>;

bool reads_any(const Block& block, const Slots& slots) {
  return std::ranges::any_of(block.reads(), [&](const auto& slot) { return slots.contains(slot); });
}

/// Slots that only components of `gone` write. A slot that nobody writes is an input, and never gone.
Slots lost_slots(const Model& model, const std::set<Component>& gone) {
  Slots lost, kept;
  for (const auto& block : model.blocks) {
    (gone.contains(block->component()) ? lost : kept).insert(block->writes().begin(), block->writes().end());
  }
  std::erase_if(lost, [&](const auto& slot) { return kept.contains(slot); });
  return lost;
}

/// Whether blocks of other components that are built read what `component` writes.
bool is_read(const Model& model, Component component, const std::set<Component>& gone) {
  Slots written;
  for (const auto& block : model.blocks) {
    if (block->component() == component) written.insert(block->writes().begin(), block->writes().end());
  }
  return std::ranges::any_of(model.blocks, [&](const auto& block) {
    return block->component() != component && !gone.contains(block->component()) && reads_any(*block, written);
  });
}

std::string flag_of(const std::set<Component>& components) {
  return "--no_build " + names_of({components.begin(), components.end()}, ",");
}

void check_asked(const Model& model, const std::set<Component>& asked) {
  const auto present = components_of(model);
  const bool has_one = std::ranges::any_of(present, [&](Component one) { return asked.contains(one); });
  if (!has_one) {  // a word may stand for several, of which a model has what it has
    throw usage_error(fmt::format("{}: expected components of this {} model ({}), found {}", flag_of(asked),
                                  model.family, names_of(present), component_name(*asked.begin())),
                      "leave it out of the list");
  }
  for (const Component component : asked) {
    if (component == Component::kLlm) {
      throw usage_error(
          flag_of(asked) + ": the language model cannot be left out: it reads the rows and makes the loss",
          "--freeze llm keeps it as it is");
    }
  }
}

/// `asked`, and what has nothing to read without it.
std::set<Component> with_dependants(const Model& model, const std::set<Component>& asked) {
  std::set<Component> gone = asked;
  for (size_t known = 0; known != gone.size();) {
    known = gone.size();
    const Slots lost = lost_slots(model, gone);
    for (const auto& block : model.blocks) {
      if (gone.contains(block->component()) || !reads_any(*block, lost)) continue;
      if (block->component() == Component::kLlm) {
        throw usage_error(
            fmt::format("{}: block {} of the language model reads what is left out", flag_of(asked), block->name()),
            "--freeze instead of --no_build keeps it without training it");
      }
      gone.insert(block->component());
    }
  }
  return gone;
}

void check_rest(const Model& model, const std::set<Component>& asked, const std::set<Component>& gone) {
  for (const Component component : components_of(model)) {
    if (component == Component::kLlm || gone.contains(component)) continue;
    if (!is_read(model, component, {}) || is_read(model, component, gone)) continue;
    std::set<Component> both = asked;
    both.insert(component);
    throw usage_error(
        fmt::format("{}: nobody would read what {} computes then", flag_of(asked), component_name(component)),
        flag_of(both) + " leaves out both");
  }
  for (const auto& block : model.blocks) {
    if (gone.contains(block->component())) continue;
    for (const auto& param : block->params()) {
      const auto owner = std::ranges::find_if(model.blocks, [&](const auto& other) {
        return std::ranges::any_of(other->params(), [&](const ParamSpec& spec) {
          return !spec.tied && spec.sources.at(0).key == param.sources.at(0).key;
        });
      });
      if (!param.tied || owner == model.blocks.end() || !gone.contains((*owner)->component())) continue;
      throw usage_error(fmt::format("{}: block {} shares {} with {}, which is left out", flag_of(asked), block->name(),
                                    param.sources[0].key, (*owner)->name()),
                        "--freeze instead of --no_build keeps it without training it");
    }
  }
}

LeftOut& entry_of(Model& model, Component component, std::string_view by) {
  const auto found =
      std::ranges::find_if(model.left_out, [&](const LeftOut& entry) { return entry.component == component; });
  if (found != model.left_out.end()) return *found;
  return model.left_out.emplace_back(LeftOut{.component = component, .by = std::string(by)});
}

}  // namespace

std::vector<Component> components_of(const Model& model) {
  std::vector<Component> found;
  for (const auto& block : model.blocks) {
    if (std::ranges::find(found, block->component()) == found.end()) found.push_back(block->component());
  }
  return found;
}

std::string names_of(const std::vector<Component>& components, std::string_view separator) {
  std::vector<std::string> names;
  names.reserve(components.size());
  for (const Component component : components) names.emplace_back(component_name(component));
  return join(names, separator);
}

void leave_out_speech(Model& model) {
  model.promised.clear();
  if (model.speech) leave_out(model, {Component::kTalker}, kNoAudioOutput);
}

Modalities unread_media(const Model& model) {
  Modalities read, gone;
  for (const auto& block : model.blocks) {
    if (!block->always_runs()) read |= block->runs_on();
  }
  for (const auto& left : model.left_out) gone |= left.runs_on;
  return gone.without(read).without(Modality::kText);
}

void leave_out(Model& model, const std::set<Component>& named, std::string_view by) {
  if (named.empty()) return;
  check_asked(model, named);
  std::set<Component> components;  // of those that the model has
  for (const Component one : components_of(model)) {
    if (named.contains(one)) components.insert(one);
  }
  const auto gone = with_dependants(model, components);
  check_rest(model, components, gone);
  std::vector<std::unique_ptr<Block>> kept;
  int64_t kept_inputs = 0;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    auto& block = model.blocks[i];
    if (!gone.contains(block->component())) {
      if (static_cast<int64_t>(i) < model.input_blocks) ++kept_inputs;
      kept.push_back(std::move(block));
      continue;
    }
    const Component component = block->component();
    LeftOut& entry = entry_of(model, component, components.contains(component) ? by : "");
    ++entry.blocks;
    entry.runs_on |= block->runs_on();
    for (const auto& param : block->params()) {
      if (param.tied) continue;
      entry.tensors.insert(entry.tensors.end(), param.sources.begin(), param.sources.end());
      model.unused.insert(model.unused.end(), param.sources.begin(), param.sources.end());
    }
  }
  model.blocks = std::move(kept);
  model.input_blocks = kept_inputs;
  if (gone.contains(Component::kTalker)) model.speech.reset();
}

}  // namespace lockstep
