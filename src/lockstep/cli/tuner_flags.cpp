#include "lockstep/cli/tuner_flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/model/hf_config.h"

namespace lockstep {
namespace {

/// {"q_proj": 16}: of a suffix or expression for modules.
template <typename T>
std::vector<std::pair<std::string, T>> pattern_from(const std::string& flag, const std::string& text) {
  std::vector<std::pair<std::string, T>> out;
  if (text.empty()) return out;
  const Json table = parse_json_or_discard(text);
  if (!table.is_object()) {
    throw usage_error(fmt::format("{}: expected JSON by names of modules, found {}", flag, text),
                      flag + " '{\"q_proj\": 16}'");
  }
  for (const auto& [name, value] : table.items()) {
    if (!value.is_number() || value.template get<double>() <= 0) {
      throw usage_error(fmt::format("{}: {}: expected a number above 0, found {}", flag, name, value.dump()));
    }
    out.emplace_back(name, value.template get<T>());
  }
  return out;
}

}  // namespace

void add_tuner_flags(CLI::App& app, TunerFlags& f) {
  const char* group = "What is trained";
  LoraConfig& lora = f.given.lora;
  app.add_option(
         "--tuner_type,--train_type,--sft_type", f.given.type,
         "full | lora | lora_llm: every weight, adapters over them, or adapters on the language model with towers "
         "and projectors whole")
      ->capture_default_str()
      ->each([&f](const std::string&) { f.type_given = true; })
      ->group(group);
  group = "Adapters (LoRA)";
  app.add_option("--lora_rank", lora.r, "")->check(whole_number(1, 65536))->capture_default_str()->group(group);
  app.add_option("--lora_alpha", lora.alpha, "their product counts alpha / rank")
      ->check(real_number({.above = 0}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--lora_dropout", lora.dropout, "of what adapters are given")
      ->check(real_number({.least = 0, .below = 1}))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--target_modules", f.target_modules,
         "suffixes or whole names of modules, all-linear (of the components that are not frozen), all-embedding")
      ->capture_default_str()
      ->group(group);
  app.add_option("--target_regex", f.target_regex, "an expression that whole names of modules match, in place of these")
      ->group(group);
  app.add_option("--exclude_modules", lora.exclude.names, "suffixes or whole names that are left out")->group(group);
  app.add_option("--adapt_frozen", f.given.adapt_frozen,
                 "false: --target_modules means no module of a component that is frozen (--freeze_vit, …)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--modules_to_save", lora.modules_to_save, "names of modules that are trained whole, beside")
      ->group(group);
  app.add_option("--layers_to_transform", lora.layers, "numbers of layers; none: all")
      ->check(whole_number(0, kMaxLayers))
      ->group(group);
  app.add_option("--rank_pattern", f.rank_pattern, "ranks of their own, as JSON: {\"q_proj\": 16}")->group(group);
  app.add_option("--alpha_pattern", f.alpha_pattern, "the same of alpha")->group(group);
  app.add_option("--lora_bias", lora.bias, "none | all | lora_only: of the model's biases, which are trained")
      ->capture_default_str()
      ->group(group);
  app.add_option("--use_rslora", lora.rslora, "alpha over the root of the rank")->capture_default_str()->group(group);
  app.add_option("--use_dora", lora.dora, "magnitudes apart from directions")->capture_default_str()->group(group);
  app.add_option("--lorap_lr_ratio", f.given.loraplus_ratio, "LoRA+: B learns so much faster than A")
      ->check(real_number({.above = 0}))
      ->group(group);
  app.add_option("--lorap_emb_lr", f.given.table_rate, "LoRA+: the learning rate of adapted tables")
      ->check(real_number({.least = 0}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--init_weights,--init_lora_weights", lora.init,
                 "true | gaussian | false: how A begins; pissa | olora: with the largest part of the matrix, which is "
                 "taken out of it")
      ->capture_default_str()
      ->group(group);
  for (CLI::Option* option : app.get_options([&](const CLI::Option* o) { return o->get_group() == group; })) {
    option->each([&f, name = "--" + option->get_lnames().front()](const std::string&) { f.given.given.insert(name); });
  }
  app.add_option("--lora_dtype", f.lora_dtype, "float32, which adapters are always kept in")->group("");
}

TunerOptions TunerFlags::options() const {
  TunerOptions out = given;
  out.lora.targets = target_regex.empty() ? ModuleNames{.names = target_modules, .regex = {}}
                                          : ModuleNames{.names = {}, .regex = target_regex};
  out.lora.rank_pattern = pattern_from<int64_t>("--rank_pattern", rank_pattern);
  out.lora.alpha_pattern = pattern_from<double>("--alpha_pattern", alpha_pattern);
  if (!lora_dtype.empty() && lora_dtype != "float32") {
    throw usage_error(fmt::format("--lora_dtype {}: adapters are kept and trained in float32", lora_dtype));
  }
  return out;
}

}  // namespace lockstep
