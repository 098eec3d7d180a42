#include "lockstep/plan/adapters.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/adapter_words.h"

namespace lockstep {
namespace {

const std::string kWeight = ".weight", kBias = ".bias";

std::string without_weight(const std::string& key) {
  return key.ends_with(kWeight) ? key.substr(0, key.size() - kWeight.size()) : key;
}

/// The key under which a parameter's tensor is known to adapters: a tied head's is its own.
const std::string& own_key(const ParamSpec& spec, size_t source) {
  return spec.tied ? spec.untied_key : spec.sources[source].key;
}

std::string in_memory(const Dialect& naming, const std::string& key) { return stored_part(naming, key).name; }

/// Of text, or of a talker's codes: what gives logits.
bool is_head(const std::string& name) { return name.ends_with("lm_head") || name.ends_with("codec_head"); }

/// The matrices and tables of one parameter: a module each, or one for sources that a file holds as one.
std::vector<ModuleOfModel> modules_of_param(const Block& block, size_t index, const Dialect& naming) {
  const ParamSpec& spec = block.params()[index];
  std::vector<ModuleOfModel> modules;
  int64_t row = 0;
  for (size_t i = 0; i < spec.sources.size(); ++i) {
    const std::string name = without_weight(in_memory(naming, own_key(spec, i)));
    const int64_t rows = spec.sources[i].shape.at(0);
    if (!modules.empty() && modules.back().name == name) {
      ++modules.back().sources;
      modules.back().rows += rows;
    } else {
      modules.push_back({.name = name,
                         .param = index,
                         .first_source = i,
                         .first_row = row,
                         .rows = rows,
                         .head = is_head(block.name()) || is_head(name),
                         .table = spec.kind == ParamKind::kTable});
    }
    row += rows;
  }
  return modules;
}

/// Every parameter of the model, by its name in memory, with the key under which it is trained whole.
std::map<std::string, std::string> parameters_of(const Model& model, const Dialect& naming) {
  std::map<std::string, std::string> out;
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      for (size_t i = 0; i < spec.sources.size(); ++i) {
        const std::string& key = own_key(spec, i);
        out.emplace(key, in_memory(naming, key));
      }
    }
  }
  return out;
}

/// "all-linear" and "all-embedding" as names, of the components and layers asked for.
std::vector<std::string> expanded(const std::vector<std::string>& names, const Model& model,
                                  const std::vector<ModuleOfModel>& modules, const AdapterChoice& choice) {
  std::vector<std::string> out;
  const auto listed = [&](const std::string& name) {
    return choice.config.layers.empty() || choice.config.lists_layer_of(name);
  };
  const auto add_all = [&](bool tables) {
    for (const auto& module : modules) {
      const Block& block = *model.blocks[module.block];
      const bool asked = choice.components.empty() || choice.components.contains(block.component());
      const bool linear = block.params()[module.param].shape.size() == 2 && !module.table && !module.head;
      const bool kind = tables ? module.table : linear;
      if (asked && kind && !choice.whole.contains(block.component()) && listed(module.name)) {
        out.push_back(module.name);
      }
    }
  };
  for (const auto& name : names) {
    if (name == "all-linear" || name == "all-embedding") {
      add_all(name == "all-embedding");
    } else {
      out.push_back(name);
    }
  }
  return out;
}

/// Names of modules that are trained whole: what they hold.
class SavedKeys {
 public:
  SavedKeys(const Model& model, const Dialect& naming) : model_(model), named_(parameters_of(model, naming)) {}

  void add_modules(const LoraConfig& config) {
    for (const auto& name : config.modules_to_save) {
      if (name == "all-embedding") {
        add_tables();
        continue;
      }
      bool any = false;
      for (const auto& [key, in_memory] : named_) {
        for (size_t dot = in_memory.find('.'); dot != std::string::npos; dot = in_memory.find('.', dot + 1)) {
          if (!in_memory.substr(0, dot).ends_with(name)) continue;
          keys_.insert(key);
          any = true;
        }
      }
      if (any) continue;
      std::set<std::string> parts;
      for (const auto& [key, in_memory] : named_) {
        for (const auto& part : split(in_memory, '.')) parts.insert(part);
      }
      throw matches_nothing("--modules_to_save", name, {parts.begin(), parts.end()}, named_.begin()->second);
    }
  }
  /// Source: ms-swift's get_modules_to_save.
  void add_tables() {
    for (const auto& block : model_.blocks) {
      for (const auto& spec : block->params()) {
        if (spec.kind != ParamKind::kTable) continue;
        for (const auto& source : spec.sources) keys_.insert(source.key);
      }
    }
  }
  void add_biases(const LoraConfig& config, const std::vector<AdaptedModule>& modules, const Model& model) {
    if (config.bias == "all") {
      for (const auto& [key, in_memory] : named_) {
        if (in_memory.find("bias") != std::string::npos) keys_.insert(key);
      }
    } else if (config.bias == "lora_only") {
      for (const auto& one : modules) {
        const ParamSpec& spec = model.blocks[one.module.block]->params()[one.module.param];
        for (size_t i = 0; i < one.module.sources; ++i) {
          const std::string key = without_weight(own_key(spec, one.module.first_source + i)) + kBias;
          if (named_.contains(key)) keys_.insert(key);
        }
      }
    }
  }
  void add_components(const std::set<Component>& whole) {
    for (const auto& block : model_.blocks) {
      if (!whole.contains(block->component())) continue;
      for (const auto& spec : block->params()) {
        for (const auto& source : spec.sources) keys_.insert(source.key);
      }
    }
  }
  std::set<std::string> take() { return std::move(keys_); }

 private:
  const Model& model_;
  std::map<std::string, std::string> named_;  // canonical key -> in memory
  std::set<std::string> keys_;
};

/// Whether one of a tied pair is trained without the other, or both apart.
bool unties_head(const Model& model, const std::set<std::string>& saved) {
  for (const auto& block : model.blocks) {
    for (const auto& spec : block->params()) {
      if (spec.tied && (saved.contains(spec.untied_key) || saved.contains(spec.sources.at(0).key))) return true;
    }
  }
  return false;
}

void check_module(const AdaptedModule& one, const LoraConfig& config, const ParamSpec& spec) {
  if (one.module.head && (config.dora || config.lora_bias)) {
    throw usage_error(fmt::format("{}: {} of an output head is not built", one.module.name,
                                  config.dora ? "DoRA" : "a bias of LoRA's B"),
                      "leave the head out of --target_modules, or adapt it by LoRA");
  }
  if (config.dora && config.lora_bias) throw usage_error("lora_bias: not together with DoRA, as in peft");
  if (one.module.table && config.lora_bias) {
    throw usage_error(fmt::format("{}: a table has no bias of LoRA's B, as in peft", one.module.name));
  }
  const int64_t in = numel_of(spec.shape) / spec.shape[0], least = std::min(one.module.rows, in);
  if (config.changes_base() && one.rank > least) {  // singular vectors are as many as the smaller side is long
    throw usage_error(fmt::format("--init_weights {}: {}: rank {} of a matrix of {} x {}", config.init, one.module.name,
                                  one.rank, one.module.rows, in),
                      fmt::format("--lora_rank {} at most, or --init_weights true", least));
  }
  if (one.rank > std::max<int64_t>({in, one.module.rows, 1}) * 64) {
    throw usage_error(
        fmt::format("{}: rank {} of a matrix of {} x {}", one.module.name, one.rank, one.module.rows, in));
  }
}

struct Parts {
  ParamSpec a, b, magnitude, bias;
};

/// The tensors of all adapted modules of one matrix.
Parts parts_of(const Block& block, const std::vector<const AdaptedModule*>& modules) {
  const ParamSpec& spec = block.params()[modules.front()->module.param];
  const bool table = modules.front()->module.table;
  Shape a_shape = spec.shape;
  a_shape[0] = 0;
  Parts parts{.a = {.local = spec.local + " A"},
              .b = {.local = spec.local + " B"},
              .magnitude = {.local = spec.local + " m"},
              .bias = {.local = spec.local + " bias"}};
  int64_t b_numel = 0, rows = 0;
  for (const AdaptedModule* one : modules) {
    const ModuleOfModel& module = one->module;
    const auto key = [&](size_t i) { return without_weight(own_key(spec, module.first_source + i)); };
    const int64_t outputs = table ? spec.shape[1] : module.rows;
    Shape a = spec.shape;
    a[0] = one->rank;
    if (table) a[1] = spec.shape[0];
    parts.a.sources.push_back({key(0) + (table ? ".lora_embedding_A" : ".lora_A.weight"), a});
    a_shape = {a_shape[0] + one->rank};
    a_shape.insert(a_shape.end(), a.begin() + 1, a.end());
    for (size_t i = 0; i < module.sources; ++i) {
      const int64_t own = table ? outputs : spec.sources[module.first_source + i].shape[0];
      Shape b{own, one->rank};
      b.resize(table ? 2 : spec.shape.size(), 1);  // of a kernel: [out, r, 1, 1]
      parts.b.sources.push_back({key(i) + (table ? ".lora_embedding_B" : ".lora_B.weight"), b});
      Shape m{own};  // of a kernel: [1, out, 1, 1]
      if (!table && spec.shape.size() > 2) {
        m.assign(spec.shape.size(), 1);
        m[1] = own;
      }
      parts.magnitude.sources.push_back({key(i) + ".lora_magnitude_vector", m});
      parts.bias.sources.push_back({key(i) + ".lora_B.bias", {own}});
    }
    b_numel += outputs * one->rank;
    rows += outputs;
  }
  parts.a.shape = a_shape;
  parts.b.shape = {b_numel};
  parts.magnitude.shape = parts.bias.shape = {rows};
  return parts;
}

/// The adapted modules of a block, by the parameter that they are part of.
std::map<size_t, std::vector<const AdaptedModule*>> by_param(const AdapterLayout& layout, size_t block) {
  std::map<size_t, std::vector<const AdaptedModule*>> out;
  for (const auto& one : layout.modules) {
    if (one.module.block == block) out[one.module.param].push_back(&one);
  }
  return out;
}

uint64_t key_of(const std::string& name) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a, 64 bits
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace

std::vector<ModuleOfModel> modules_of(const Model& model, const Dialect& naming) {
  std::vector<ModuleOfModel> modules;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const Block& block = *model.blocks[b];
    for (size_t p = 0; p < block.params().size(); ++p) {
      if (block.params()[p].kind == ParamKind::kPlain) continue;
      for (auto& module : modules_of_param(block, p, naming)) {
        module.block = b;
        modules.push_back(std::move(module));
      }
    }
  }
  return modules;
}

std::vector<std::string> peft_modules(const Model& model, const Dialect& naming) {
  std::vector<std::string> names;
  for (const auto& module : modules_of(model, naming)) names.push_back(module.name);
  for (const auto& source : model.unused) {
    const std::string name = stored_part(naming, source.key).name;
    if (source.shape.size() > 1 && name.ends_with(".weight")) names.push_back(name.substr(0, name.size() - 7));
  }
  return names;
}

AdapterLayout choose_adapters(const Model& model, const Dialect& naming, const AdapterChoice& choice) {
  AdapterLayout layout{.config = choice.config, .naming = naming, .whole = choice.whole};
  const auto modules = modules_of(model, naming);
  layout.config.targets.names = expanded(choice.config.targets.names, model, modules, choice);
  check_expressions(layout.config);
  check_targets(layout.config, modules);
  for (const auto& module : modules) {
    const Component component = model.blocks[module.block]->component();
    if (choice.whole.contains(component)) continue;
    if (!choice.adapt_frozen && !choice.components.contains(component)) continue;
    if (!layout.config.targets_module(module.name)) continue;
    const int64_t rank = layout.config.rank_of(module.name);
    layout.modules.push_back({module, rank, layout.config.scale_of(module.name, rank)});
    check_module(layout.modules.back(), layout.config, model.blocks[module.block]->params()[module.param]);
  }
  check_further_words(choice.config, modules, layout.modules);
  SavedKeys saved(model, naming);
  saved.add_modules(layout.config);
  saved.add_biases(layout.config, layout.modules, model);
  saved.add_components(choice.whole);
  layout.saved = saved.take();
  layout.unties = unties_head(model, layout.saved);
  if (!layout.modules.empty() || !layout.saved.empty()) return layout;
  const std::string given =
      !choice.config.targets.regex.empty() ? "--target_regex " + choice.config.targets.regex : "--target_modules";
  throw usage_error(fmt::format("{}: no module of this {} model{} matches", given, model.family,
                                choice.adapt_frozen ? "" : " that is not frozen"),
                    fmt::format("modules are called {}, … ({} of them; last parts: {})", modules.front().name,
                                modules.size(), join(leaves_of(modules), ", ")));
}

std::vector<ParamSpec> AdapterLayout::params_of(const Model& model, size_t block) const {
  std::vector<ParamSpec> specs;
  for (const auto& [param, adapted_here] : by_param(*this, block)) {
    Parts parts = parts_of(*model.blocks[block], adapted_here);
    const bool table = adapted_here.front()->module.table;
    parts.a.rate = table ? table_rate : 1;
    parts.b.rate = table ? table_rate : loraplus_ratio;
    // Of a table too. Source: peft's create_loraplus_optimizer.
    parts.magnitude.rate = parts.bias.rate = loraplus_ratio;
    specs.push_back(std::move(parts.a));
    specs.push_back(std::move(parts.b));
    if (config.dora) specs.push_back(std::move(parts.magnitude));
    if (config.lora_bias) specs.push_back(std::move(parts.bias));
  }
  for (auto& spec : specs) {
    for (auto& source : spec.sources) source.key += suffix();
  }
  return specs;
}

AdaptedBlock AdapterLayout::use_of(const Model& model, size_t block, size_t first) const {
  AdaptedBlock use;
  size_t next = first;
  for (const auto& [param, adapted_here] : by_param(*this, block)) {
    AdaptedParam adapted{.param = param, .a = next, .b = next + 1, .dropout = config.dropout};
    next += 2;
    if (config.dora) adapted.magnitude = next++;
    if (config.lora_bias) adapted.bias = next++;
    if (adapted_here.front()->module.table) adapted.dropout = 0;  // ids cannot be dropped
    adapted.key = key_of(adapted_here.front()->module.name);
    int64_t begin = 0;
    for (const AdaptedModule* one : adapted_here) {
      const ParamSpec& spec = model.blocks[block]->params()[param];
      const bool table = one->module.table;
      const int64_t count = table ? spec.shape[1] : one->module.rows;
      adapted.parts.push_back({.first = table ? 0 : one->module.first_row,
                               .count = count,
                               .rank = one->rank,
                               .begin = begin,
                               .scale = one->scale});
      begin += count * one->rank;
    }
    use.params.push_back(std::move(adapted));
  }
  return use;
}

StoredPart AdapterLayout::in_file(const ParamSource& source) const {
  const std::string root = "base_model.model.";
  const size_t lora = source.key.find(".lora_");
  if (lora == std::string::npos) {
    StoredPart part = stored_part(naming, source.key);
    const bool inside = part.name.ends_with(kBias) && adapts(part.name.substr(0, part.name.size() - kBias.size()));
    if (inside) part.name.insert(part.name.size() - kBias.size(), ".base_layer");
    part.name = root + part.name;
    return part;
  }
  StoredPart part = stored_part(naming, source.key.substr(0, lora) + kWeight);
  const std::string suffix = source.key.substr(lora);
  part.name = root + without_weight(part.name) + suffix;
  if (suffix == ".lora_A.weight" || suffix == ".lora_embedding_A") part.rows = {};
  return part;
}

bool AdapterLayout::adapts(const std::string& module) const {
  return std::ranges::any_of(modules, [&](const auto& one) { return one.module.name == module; });
}

Dialect naming_of_adapters(const Model& model, const std::string& folder) {
  const Dialect* in_memory = nullptr;
  for (const auto& dialect : model.dialects) {
    if (dialect.own_code && dialect.name == folder) return dialect;
    if (dialect.name == "in memory") in_memory = &dialect;
  }
  return in_memory != nullptr ? *in_memory : Dialect{"released", {}};
}

}  // namespace lockstep
