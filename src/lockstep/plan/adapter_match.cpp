#include "lockstep/plan/adapter_match.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/adapter_names.h"
#include "lockstep/plan/settled_words.h"

namespace lockstep {
namespace {

constexpr std::string_view kRoots[] = {"base_model.model.", ""};
constexpr std::string_view kWeight = ".weight";
constexpr const char* kCut = "the file was cut, or saved in part (a run under ZeRO-3 that did not gather)";

/// What a tensor is to its module.
enum class Role { kA, kB, kMagnitude, kBiasOfB, kWhole };

struct Parsed {
  const AdapterTensor* tensor = nullptr;
  std::string name;  // of the module; of a tensor that is trained whole: its own
  Role role = Role::kWhole;
};

struct Ending {
  const char* text;
  Role role;
};
constexpr std::array<Ending, 7> kEndings = {{{".lora_A.weight", Role::kA},
                                             {".lora_B.weight", Role::kB},
                                             {".lora_B.bias", Role::kBiasOfB},
                                             {".lora_embedding_A", Role::kA},
                                             {".lora_embedding_B", Role::kB},
                                             {".lora_magnitude_vector", Role::kMagnitude},
                                             {".lora_magnitude_vector.weight", Role::kMagnitude}}};

std::string erased(std::string text, const std::string& part) {
  if (const size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  return text;
}

/// Some writers put the adapter's name in between ("lora_A.default.weight").
Parsed parsed(const AdapterTensor& tensor) {
  std::string name = erased(tensor.spec.name, ".default");
  for (const std::string_view root : kRoots) {
    if (!name.starts_with(root)) continue;
    name.erase(0, root.size());
    break;
  }
  for (const auto& [text, role] : kEndings) {
    if (name.ends_with(text)) return {&tensor, name.substr(0, name.size() - std::string_view(text).size()), role};
  }
  return {&tensor, erased(erased(std::move(name), ".base_layer"), ".modules_to_save"), Role::kWhole};
}

/// One way to call what a model has.
struct Names {
  std::string name;
  Dialect dialect;
  std::map<std::string, ModuleOfModel> modules;
  std::map<std::string, std::map<std::string, StoredRows>> params;  // -> canonical keys of what it holds, and where
  std::map<std::string, std::string> idle;                          // tensors that no block reads -> their keys
};

Names shape_of(const Model& model, const std::string& name, const Dialect& dialect, bool text_only) {
  Names shape{.name = name, .dialect = dialect};
  const auto called = [&](const std::string& text) { return text_only ? text_name(text) : text; };
  const auto asked = [&](const Block& block) { return !text_only || block.component() == Component::kLlm; };
  for (auto& module : modules_of(model, dialect)) {
    if (asked(*model.blocks[module.block])) shape.modules.emplace(called(module.name), module);
  }
  for (const auto& block : model.blocks) {
    if (!asked(*block)) continue;
    for (const auto& spec : block->params()) {
      for (const auto& source : spec.sources) {
        const std::string& key = spec.tied ? spec.untied_key : source.key;
        const StoredPart part = stored_part(dialect, key);
        shape.params[called(part.name)].emplace(key, part.rows);
      }
    }
  }
  for (const auto& source : model.unused) shape.idle.emplace(stored_part(dialect, source.key).name, source.key);
  return shape;
}

/// The tensor of the model that it is, or that it adapts.
std::string within(const Parsed& one) { return one.role == Role::kWhole ? one.name : one.name + std::string(kWeight); }

bool is_idle(const Names& shape, const Parsed& one) { return shape.idle.contains(within(one)); }

bool knows(const Names& shape, const Parsed& one) {
  return one.role == Role::kWhole ? shape.params.contains(one.name) : shape.modules.contains(one.name);
}

/// The shape of names under which the most tensors find their module.
Names best_shape(const Model& model, const Dialect& naming, const std::vector<Parsed>& all) {
  std::vector<Names> shapes{shape_of(model, naming.name, naming, false),
                            shape_of(model, "released", Dialect{"released", {}}, false)};
  for (const auto& dialect : model.dialects) shapes.push_back(shape_of(model, dialect.name, dialect, false));
  shapes.push_back(shape_of(model, "text only", Dialect{"released", {}}, true));
  for (const auto& dialect : model.dialects) {
    const Dialect bare = without_head(dialect);
    shapes.push_back(shape_of(model, bare.name, bare, false));
  }
  const auto found = [&](const Names& shape) {
    return std::ranges::count_if(all, [&](const Parsed& one) { return knows(shape, one) || is_idle(shape, one); });
  };
  size_t best = 0;
  for (size_t i = 1; i < shapes.size(); ++i) {
    if (found(shapes[i]) > found(shapes[best])) best = i;
  }
  return std::move(shapes[best]);
}

class Matcher {
 public:
  Matcher(const Model& model, const Dialect& naming, const LoraConfig& config, std::string place)
      : model_(model), naming_(naming), config_(config), place_(std::move(place)) {}

  AdapterMatch run(const std::vector<AdapterTensor>& tensors) {
    std::vector<Parsed> all;
    for (const auto& tensor : tensors) {
      // Of a module that is trained whole peft may keep what it began as (save_embedding_layers): the base has it.
      if (tensor.spec.name.find(".original_module.") == std::string::npos) all.push_back(parsed(tensor));
    }
    if (all.empty()) throw checkpoint_error(place_ + ": expected tensors of an adapter, found none");
    shape_ = best_shape(model_, naming_, all);
    out_.shape = shape_.name;
    out_.naming_of_files = shape_.dialect;
    refuse_unknown(all);
    require_saved(all);
    for (const auto& one : all) sort_in(one);
    for (auto& [name, tensors_of] : by_module_) add_module(name, tensors_of);
    std::ranges::sort(out_.layout.modules, [](const AdaptedModule& a, const AdaptedModule& b) {
      return std::tuple(a.module.block, a.module.param, a.module.first_row) <
             std::tuple(b.module.block, b.module.param, b.module.first_row);
    });
    finish();
    return std::move(out_);
  }

 private:
  struct TensorsOfModule {
    const AdapterTensor *a = nullptr, *b = nullptr, *magnitude = nullptr, *bias = nullptr;
  };

  void refuse_unknown(const std::vector<Parsed>& all) const {
    std::vector<const Parsed*> unknown;
    for (const auto& one : all) {
      if (!knows(shape_, one) && !is_idle(shape_, one)) unknown.push_back(&one);
    }
    if (unknown.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, module] : shape_.modules) names.push_back(name);
    const std::string near = nearest_name(unknown.front()->name, names);
    throw checkpoint_error(
        fmt::format("{}: {}: expected the name of a module of this {} model, found \"{}\" ({} of {} tensors find none)",
                    place_, unknown.front()->tensor->file, model_.family, unknown.front()->tensor->spec.name,
                    unknown.size(), all.size()),
        fmt::format("{}modules are called {}, …: is this an adapter of another base model?",
                    near.empty() ? "" : "the nearest is " + near + "; ", names.empty() ? "" : names.front()));
  }

  /// Where the config names a module that is trained whole and the model has one, its tensors are there.
  void require_saved(const std::vector<Parsed>& all) const {
    const auto is_of = [](const std::string& tensor, const std::string& module) {
      return tensor.starts_with(module + ".") || tensor.find("." + module + ".") != std::string::npos;
    };
    for (const std::string& module : config_.modules_to_save) {
      const bool saved = std::ranges::any_of(all, [&](const Parsed& one) { return is_of(one.name, module); });
      const bool known = std::ranges::any_of(shape_.params, [&](const auto& one) { return is_of(one.first, module); });
      if (saved || !known) continue;
      throw checkpoint_error(
          fmt::format("{}: adapter_config.json: modules_to_save: expected tensors of \"{}\", found none", place_,
                      module),
          "the file was cut, or saved in part");
    }
  }

  /// peft would leave out what its words do not choose.
  void require_targeted(const std::string& name) const {
    const ModuleNames& words = config_.targets;
    if (words.empty() || std::ranges::count(words.names, "all-linear") > 0 || config_.targets_module(name)) return;
    throw checkpoint_error(fmt::format("{}: adapter_config.json: expected target_modules, exclude_modules and "
                                       "layers_to_transform to choose {}, which the files adapt",
                                       place_, name),
                           "the config belongs to another adapter");
  }

  void sort_in(const Parsed& one) {
    if (!knows(shape_, one)) return add_idle(one);
    if (one.role == Role::kWhole) return add_whole(one);
    TensorsOfModule& of = by_module_[one.name];
    const AdapterTensor*& slot = one.role == Role::kA           ? of.a
                                 : one.role == Role::kB         ? of.b
                                 : one.role == Role::kMagnitude ? of.magnitude
                                                                : of.bias;
    if (slot != nullptr) {
      throw checkpoint_error(fmt::format("{}: {} and {} are the same part of {}", place_, slot->spec.name,
                                         one.tensor->spec.name, one.name));
    }
    slot = one.tensor;
  }

  void add_idle(const Parsed& one) {
    const std::string& found = one.tensor->spec.name;
    std::string name = stored_part(naming_, shape_.idle.at(within(one))).name;
    if (one.role != Role::kWhole) name.erase(name.size() - kWeight.size());
    const size_t at = found.find(one.name);
    std::string written = found;
    if (at != std::string::npos) written.replace(at, one.name.size(), name);
    out_.idle.push_back({found, std::move(written)});
    if (one.role != Role::kA) return;
    worded_.push_back(
        {name, one.tensor->spec.shape.empty() ? 0 : one.tensor->spec.shape[0], config_.alpha_of(one.name)});
  }

  void add_whole(const Parsed& one) {
    // peft keeps a copy of a table or a head that it adapts.
    const bool copy = one.tensor->spec.name.ends_with(".base_layer.weight");
    const bool learns = !copy && is_trained(one);
    for (const auto& [key, rows] : shape_.params.at(one.name)) {
      if (learns) out_.layout.saved.insert(key);
      if (learns && config_.saves(one.name)) saved_.insert(stored_part(naming_, key).name);
      out_.where[key] = {one.tensor->spec.name, rows};
      whole_[key] = one.tensor;
    }
    if (copy || learns) return;
    const std::string& key = shape_.params.at(one.name).begin()->first;
    out_.frozen.push_back({one.tensor->spec.name, std::string(kRoots[0]) + stored_part(naming_, key).name});
  }

  /// What stands beside the adapter's own file is there because it was trained; in it may be tables that were not.
  bool is_trained(const Parsed& one) const {
    const bool is_bias = config_.bias != "none" && one.name.find("bias") != std::string::npos;
    return is_bias || config_.saves(one.name) || !one.tensor->file.starts_with("adapter_model");
  }

  void expect(const AdapterTensor& tensor, const Shape& expected) const {
    if (tensor.spec.shape == expected) return;
    throw checkpoint_error(fmt::format("{}: {}: expected {}, found {} in {}", place_, tensor.spec.name,
                                       format_shape(expected), tensor.spec.describe(), tensor.file),
                           "is this an adapter of another base model?");
  }

  void add_module(const std::string& name, const TensorsOfModule& of) {
    const ModuleOfModel& module = shape_.modules.at(name);
    require_targeted(name);
    if (of.a == nullptr || of.b == nullptr) {
      throw checkpoint_error(fmt::format("{}: {}: expected lora_A and lora_B, found {} alone", place_, name,
                                         of.a != nullptr   ? "lora_A"
                                         : of.b != nullptr ? "lora_B"
                                                           : "another tensor"),
                             kCut);
    }
    const int64_t rank = of.a->spec.shape.empty() ? 0 : of.a->spec.shape[0];
    if (rank < 1) throw checkpoint_error(fmt::format("{}: {}: a rank of 0", place_, of.a->spec.name), kCut);
    if (of.b->spec.shape.size() < 2 || of.b->spec.shape[1] != rank) {
      throw checkpoint_error(
          fmt::format("{}: {}: lora_A has rank {}, lora_B is {}", place_, name, rank, of.b->spec.describe()));
    }
    if (config_.rank_of(name) != rank) {
      throw checkpoint_error(
          fmt::format("{}: {}: expected rank {} (adapter_config.json: r, rank_pattern), found {} in {}", place_, name,
                      config_.rank_of(name), rank, of.a->file),
          "the config belongs to another adapter");
    }
    check_dora(name, of);
    const ParamSpec& spec = model_.blocks[module.block]->params()[module.param];
    Shape a = spec.shape;
    a[0] = rank;
    if (module.table) a[1] = spec.shape[0];
    Shape b{module.table ? spec.shape[1] : module.rows, rank};
    if (!module.table) b.resize(spec.shape.size(), 1);
    expect(*of.a, a);
    expect(*of.b, b);
    if (of.magnitude != nullptr && numel_of(of.magnitude->spec.shape) != b[0]) expect(*of.magnitude, {b[0]});
    if (of.bias != nullptr) expect(*of.bias, {b[0]});
    out_.layout.modules.push_back({named_anew(module), rank, config_.scale_of(name, rank)});
    worded_.push_back({out_.layout.modules.back().module.name, rank, config_.alpha_of(name)});
    tensors_[{module.block, module.param, module.first_row}] = of;
  }

  void check_dora(const std::string& name, const TensorsOfModule& of) const {
    if (config_.dora == (of.magnitude != nullptr) && config_.lora_bias == (of.bias != nullptr)) return;
    throw checkpoint_error(
        fmt::format("{}: {}: adapter_config.json says use_dora {} and lora_bias {}, the files have {}", place_, name,
                    config_.dora, config_.lora_bias,
                    of.magnitude != nullptr ? "a magnitude vector"
                    : of.bias != nullptr    ? "a bias of lora_B"
                                            : "neither"));
  }

  /// The same module under the name that is written.
  ModuleOfModel named_anew(ModuleOfModel module) const {
    if (names_.empty()) {
      for (const auto& one : modules_of(model_, naming_)) names_[{one.block, one.param, one.first_row}] = one.name;
    }
    const auto name = names_.find({module.block, module.param, module.first_row});
    if (name == names_.end()) {
      throw checkpoint_error(
          fmt::format("{}: {}: expected an adapter of each part of this matrix, found one of all", place_, module.name),
          "it was made of the model in another form: take that folder as --model");
    }
    module.name = name->second;
    return module;
  }

  /// Which tensor of the files fills each that is computed with.
  void finish() {
    AdapterLayout& layout = out_.layout;
    out_.config = layout.config = config_;
    layout.naming = naming_;
    if (shape_.name != naming_.name) settle_words(layout.config);
    for (const auto& one : layout.modules) {
      const auto& of = tensors_.at({one.module.block, one.module.param, one.module.first_row});
      const AdapterLayout alone{.config = config_, .naming = shape_.dialect, .modules = {one}};
      for (const auto& spec : alone.params_of(model_, one.module.block)) {
        for (const auto& source : spec.sources) {
          const bool is_a =
              source.key.find(".lora_A.") != std::string::npos || source.key.ends_with("lora_embedding_A");
          const bool is_bias = source.key.ends_with(".lora_B.bias");
          const bool is_magnitude = source.key.ends_with(".lora_magnitude_vector");
          const AdapterTensor* tensor = is_a ? of.a : is_bias ? of.bias : is_magnitude ? of.magnitude : of.b;
          out_.where[source.key] = {tensor->spec.name, alone.in_file(source).rows};
        }
      }
    }
    check_whole();
    layout.unties = std::ranges::any_of(model_.blocks, [&](const auto& block) {
      return std::ranges::any_of(block->params(), [&](const ParamSpec& spec) {
        return spec.tied && (layout.saved.contains(spec.untied_key) || layout.saved.contains(spec.sources[0].key));
      });
    });
  }

  /// The config's words mean the same modules as before.
  void settle_words(LoraConfig& config) const {
    std::vector<std::string> tensors;
    for (const auto& block : model_.blocks) {
      for (const auto& spec : block->params()) {
        for (const auto& source : spec.sources) {
          tensors.push_back(stored_part(naming_, spec.tied ? spec.untied_key : source.key).name);
        }
      }
    }
    settle_saved(config, saved_, tensors);
    settle_patterns(config, worded_);
    std::set<std::string> chosen;
    for (const auto& one : worded_) chosen.insert(one.name);
    settle_targets(config, config_.targets, chosen, peft_modules(model_, naming_));
  }

  void check_whole() const {
    for (const auto& block : model_.blocks) {
      for (const auto& spec : block->params()) {
        for (const auto& source : spec.sources) {
          const auto found = whole_.find(spec.tied ? spec.untied_key : source.key);
          if (found != whole_.end()) expect(*found->second, out_.where.at(found->first).whole_of(source.shape));
        }
      }
    }
  }

  using Place = std::tuple<size_t, size_t, int64_t>;
  const Model& model_;
  const Dialect& naming_;
  const LoraConfig& config_;
  std::string place_;
  Names shape_;
  AdapterMatch out_;
  std::map<std::string, TensorsOfModule> by_module_;
  std::map<std::string, const AdapterTensor*> whole_;
  std::vector<WordedModule> worded_;  // all that is adapted, under the names that are written
  std::set<std::string> saved_;       // tensors that modules_to_save names, likewise
  std::map<Place, TensorsOfModule> tensors_;
  mutable std::map<Place, std::string> names_;
};

}  // namespace

AdapterMatch match_adapter(const Model& model, const Dialect& naming, const LoraConfig& config,
                           const std::vector<AdapterTensor>& tensors, const std::string& place) {
  return Matcher(model, naming, config, place).run(tensors);
}

}  // namespace lockstep
