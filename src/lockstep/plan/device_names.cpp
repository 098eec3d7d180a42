#include "lockstep/plan/device_names.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

/// Last parts of names of modules that hold no weights in transformers' models.
constexpr std::array<std::string_view, 7> kWithoutWeights{
    "rotary_emb", "rotary_pos_emb", "act_fn", "activation_fn", "act", "dropout", "hidden_dropout"};

void add_keys(const Dialect* dialect, const std::vector<ParamSource>& sources, std::vector<std::string>& keys) {
  for (const auto& source : sources) {
    keys.push_back(dialect == nullptr ? source.key : stored_part(*dialect, source.key).name);
  }
}

}  // namespace

std::string parent_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool is_within(const std::string& name, const std::string& ancestor) {
  return ancestor.empty() ||
         (name.starts_with(ancestor) && (name.size() == ancestor.size() || name[ancestor.size()] == '.'));
}

DeviceNames::DeviceNames(const Model& model, const Dialect* dialect) : family_(model.family) {
  std::vector<std::string> others;
  add_keys(dialect, model.unused, others);
  for (const auto& left_out : model.left_out) add_keys(dialect, left_out.tensors, others);
  for (const auto& block : model.blocks) {
    BlockNames names{.name = dialect == nullptr ? block->name() : module_name(*dialect, block->name())};
    for (const auto& param : block->params()) {
      add_keys(dialect, param.sources, param.tied ? names.tied : names.keys);
    }
    keys_.insert(keys_.end(), names.keys.begin(), names.keys.end());
    add_known(names.name);
    others.insert(others.end(), names.tied.begin(), names.tied.end());
    blocks_.push_back(std::move(names));
  }
  for (const auto& key : keys_) add_known(key);
  for (auto& key : others) add_known(std::move(key));
}

bool DeviceNames::knows(const std::string& name) const {
  if (known_.contains(name)) return true;
  const std::string parent = parent_name(name);
  const std::string last = parent.empty() ? name : name.substr(parent.size() + 1);
  return std::ranges::find(kWithoutWeights, last) != kWithoutWeights.end() && known_.contains(parent);
}

bool DeviceNames::belongs_to(const std::string& name, const BlockNames& block) const {
  return std::ranges::all_of(keys_, [&](const std::string& key) {
    return !is_within(key, name) || std::ranges::find(block.keys, key) != block.keys.end();
  });
}

void DeviceNames::add_known(std::string name) {
  for (; known_.insert(name).second && !name.empty(); name = parent_name(name)) {
  }
}

}  // namespace lockstep
