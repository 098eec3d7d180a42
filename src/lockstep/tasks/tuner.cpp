#include "lockstep/tasks/tuner.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/settled_words.h"

namespace lockstep {
namespace {

const std::set<Component> kBesideText{Component::kVision, Component::kAudio, Component::kProjector,
                                      Component::kAudioProjector};

/// Those that the model has and that learn.
std::set<Component> trained_components(const ComponentChoice& components, const Model& model) {
  const auto frozen = components.frozen();
  std::set<Component> out;
  for (const auto& block : model.blocks) {
    if (!frozen.contains(block->component())) out.insert(block->component());
  }
  return out;
}

std::string leaf_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

void set_rates(AdapterLayout& layout, const TunerOptions& tuner, double learning_rate) {
  layout.loraplus_ratio = tuner.loraplus_ratio;
  if (tuner.loraplus_ratio != 1 && learning_rate > 0) layout.table_rate = tuner.table_rate / learning_rate;
}

/// Whether every parameter of a component is trained whole.
bool saves_all(const AdapterLayout& layout, const Model& model, Component component) {
  return std::ranges::all_of(model.blocks, [&](const auto& block) {
    return block->component() != component || std::ranges::all_of(block->params(), [&](const ParamSpec& spec) {
             return std::ranges::all_of(spec.sources,
                                        [&](const auto& source) { return layout.saved.contains(source.key); });
           });
  });
}

}  // namespace

void TunerOptions::check() const {
  if (type != "full" && type != "lora" && type != "lora_llm") {
    throw usage_error(fmt::format("--tuner_type: expected full, lora or lora_llm, found {}", type));
  }
  static const std::vector<std::string> inits = {"true", "false", "gaussian", "pissa", "olora"};
  if (std::ranges::find(inits, lora.init) == inits.end()) {
    throw usage_error(fmt::format("--init_weights {}: expected {}", lora.init, join(inits, ", ")),
                      "make the adapter with peft, and go on from it with --adapters");
  }
  if (lora.init == "false" && lora.dora) {
    throw usage_error("--init_weights false: not with --use_dora, whose magnitudes begin as the model's own",
                      "--init_weights true");
  }
  if (!lora.targets.regex.empty() && !lora.layers.empty()) {
    throw usage_error("--layers_to_transform is for names of modules, and --target_regex names them with their layers",
                      "write the layers into the expression");
  }
  if (lora.bias != "none" && lora.bias != "all" && lora.bias != "lora_only") {
    throw usage_error(fmt::format("--lora_bias: expected none, all or lora_only, found {}", lora.bias));
  }
}

std::string TunerOptions::fingerprint() const {
  return type + lora.to_json().dump() + std::to_string(loraplus_ratio) + (adapt_frozen ? "" : " unfrozen");
}

namespace {

/// "all-linear" is of what is not frozen, if there is such.
void check_left(const AdapterChoice& choice) {
  const auto& names = choice.config.targets.names;
  const bool all = std::ranges::any_of(names, [](const auto& name) { return name.starts_with("all-"); });
  if (!all || !choice.components.empty()) return;
  throw usage_error("nothing is left to adapt: every part of the model is frozen, or trained whole",
                    "--freeze_llm false, or another part that is to be adapted");
}

}  // namespace

AdapterLayout fresh_adapters(const TunerOptions& tuner, const ComponentChoice& components, double learning_rate,
                             const Model& model, const Dialect& naming) {
  AdapterChoice choice{
      .config = tuner.lora, .components = trained_components(components, model), .adapt_frozen = tuner.adapt_frozen};
  if (tuner.type == "lora_llm") {
    for (const Component component : choice.components) {
      if (kBesideText.contains(component)) choice.whole.insert(component);
    }
    std::erase_if(choice.components, [](Component one) { return kBesideText.contains(one); });
  }
  check_left(choice);
  AdapterLayout layout = choose_adapters(model, naming, choice);
  set_rates(layout, tuner, learning_rate);
  std::set<std::string> chosen;
  for (const auto& one : layout.modules) chosen.insert(one.module.name);
  settle_targets(layout.config, tuner.lora.targets, chosen, peft_modules(model, layout.naming));
  return layout;
}

namespace {

/// What was asked for by a flag, of an adapter that says otherwise.
void require_as_given(const TunerOptions& tuner, const ComponentChoice& components, const AdapterLayout& of_folder,
                      const Model& model) {
  const LoraConfig &asked = tuner.lora, &is = of_folder.config;
  const auto same = [&](const std::string& flag, const auto& wanted, const auto& found) {
    if (!tuner.given.contains(flag) || wanted == found) return;
    throw usage_error(
        fmt::format("{} {}: the adapter that is gone on with has {}", flag, wanted, found),
        fmt::format("leave {} out, or begin a new adapter without --adapters and --resume_from_checkpoint", flag));
  };
  same("--lora_rank", asked.r, is.r);
  same("--lora_alpha", asked.alpha, is.alpha);
  same("--use_rslora", asked.rslora, is.rslora);
  same("--use_dora", asked.dora, is.dora);
  same("--lora_bias", asked.bias, is.bias);
  same("--rank_pattern", LoraConfig{.rank_pattern = asked.rank_pattern}.to_json()["rank_pattern"].dump(),
       LoraConfig{.rank_pattern = is.rank_pattern}.to_json()["rank_pattern"].dump());
  same("--alpha_pattern", LoraConfig{.alpha_pattern = asked.alpha_pattern}.to_json()["alpha_pattern"].dump(),
       LoraConfig{.alpha_pattern = is.alpha_pattern}.to_json()["alpha_pattern"].dump());
  static constexpr const char* kWhich[] = {"--target_modules", "--target_regex",    "--exclude_modules",
                                           "--adapt_frozen",   "--modules_to_save", "--layers_to_transform"};
  const auto* which = std::ranges::find_if(kWhich, [&](const char* flag) { return tuner.given.contains(flag); });
  if (which == std::end(kWhich)) return;
  const auto names = [](const AdapterLayout& layout) {
    std::set<std::string> out = layout.saved;
    for (const auto& one : layout.modules) out.insert(one.module.name);
    return out;
  };
  const auto wanted = names(fresh_adapters(tuner, components, 0, model, of_folder.naming)), found = names(of_folder);
  std::vector<std::string> apart;
  std::ranges::set_symmetric_difference(wanted, found, std::back_inserter(apart));
  if (apart.empty()) return;
  throw usage_error(
      fmt::format("{}: the adapter that is gone on with is of {} modules, these words of {}: they differ in {}", *which,
                  found.size(), wanted.size(), apart.front()),
      fmt::format("leave {} out, or begin a new adapter", *which));
}

}  // namespace

std::string TunerOptions::unheeded() const {
  const TunerOptions usual;  // as args.json of a run without adapters says them
  std::vector<std::string> flags;
  const auto look = [&](const char* flag, bool differs) {
    if (differs && given.contains(flag)) flags.emplace_back(flag);
  };
  look("--lora_rank", lora.r != usual.lora.r);
  look("--lora_alpha", lora.alpha != usual.lora.alpha);
  look("--lora_dropout", lora.dropout != usual.lora.dropout);
  look("--target_modules", lora.targets.names != usual.lora.targets.names);
  look("--target_regex", !lora.targets.regex.empty());
  look("--exclude_modules", !lora.exclude.names.empty());
  look("--adapt_frozen", !adapt_frozen);
  look("--modules_to_save", !lora.modules_to_save.empty());
  look("--layers_to_transform", !lora.layers.empty());
  look("--rank_pattern", !lora.rank_pattern.empty());
  look("--alpha_pattern", !lora.alpha_pattern.empty());
  look("--lora_bias", lora.bias != usual.lora.bias);
  look("--use_rslora", lora.rslora);
  look("--use_dora", lora.dora);
  look("--lorap_lr_ratio", loraplus_ratio != usual.loraplus_ratio);
  look("--init_weights", lora.init != usual.lora.init);
  if (adapts() || flags.empty()) return "";
  return fmt::format("{} {} of no effect: --tuner_type full trains the weights themselves, and makes no adapter",
                     join(flags, ", "), flags.size() == 1 ? "is" : "are");
}

AdapterLayout continued_adapters(const TunerOptions& tuner, const ComponentChoice& components, double learning_rate,
                                 const Model& model, AdapterLayout of_folder) {
  require_as_given(tuner, components, of_folder, model);
  if (of_folder.config.init == "mica") {
    throw usage_error(
        "init_lora_weights mica: of such an adapter A alone learns, which is not built",
        "merge it (lockstep export --adapters DIR --merge_lora true), and begin another over the merged folder");
  }
  if (tuner.given.contains("--lora_dropout")) of_folder.config.dropout = tuner.lora.dropout;
  set_rates(of_folder, tuner, learning_rate);
  if (tuner.type != "lora_llm") return of_folder;
  for (const Component component : kBesideText) {
    if (saves_all(of_folder, model, component)) of_folder.whole.insert(component);
  }
  return of_folder;
}

std::string describe_adapters(const Model& model, const AdapterLayout& layout) {
  struct Row {
    int64_t modules = 0, params = 0;
    std::map<std::string, int64_t> leaves;
    std::set<int64_t> ranks;
  };
  std::map<Component, Row> rows;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const auto& spec : layout.params_of(model, b)) rows[model.blocks[b]->component()].params += spec.numel();
  }
  for (const auto& one : layout.modules) {
    Row& row = rows[model.blocks[one.module.block]->component()];
    ++row.modules;
    ++row.leaves[leaf_of(one.module.name)];
    row.ranks.insert(one.rank);
  }
  std::string out;
  for (const auto& [component, row] : rows) {
    std::vector<std::string> leaves;
    for (const auto& [leaf, count] : row.leaves) leaves.push_back(fmt::format("{} x{}", leaf, count));
    out += fmt::format("{}{} on {}: {} modules ({}), rank {}, {} parameters", out.empty() ? "" : "; ",
                       layout.config.dora ? "DoRA" : "LoRA", component_name(component), row.modules, join(leaves, ", "),
                       fmt::join(row.ranks, "/"), format_count(row.params));
  }
  if (!layout.saved.empty()) {
    out += fmt::format("{}{} tensors trained whole ({}{})", out.empty() ? "" : "; ", layout.saved.size(),
                       *layout.saved.begin(), layout.saved.size() > 1 ? ", …" : "");
  }
  return out;
}

}  // namespace lockstep
