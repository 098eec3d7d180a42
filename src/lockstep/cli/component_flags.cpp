#include "lockstep/cli/component_flags.h"

#include <CLI/CLI.hpp>

#include "lockstep/cli/number_bounds.h"
#include "lockstep/model/leave_out.h"

namespace lockstep {
namespace {

constexpr int64_t kMostLayers = 1 << 20;

}  // namespace

void add_component_flags(CLI::App& app, ComponentChoice& f, bool rates) {
  const char* group = "What is trained";
  const std::string names = names_of(all_components(), ",");
  app.add_option("--train", f.train, names + ": trains these, freezes the others")->group(group);
  app.add_option("--freeze", f.freeze, "a list as well: freezes these; without --train, trains the others")
      ->group(group);
  app.add_option("--freeze_llm", f.freeze_llm, "the language model (default: false)")->group(group);
  app.add_option("--freeze_vit", f.freeze_vit,
                 "the towers, for pictures and for sound (default: true; with --tuner_type lora_llm false)")
      ->group(group);
  app.add_option("--freeze_aligner", f.freeze_aligner,
                 "the projectors (default: true; with --tuner_type lora_llm false)")
      ->group(group);
  FreezeChoice& by_name = f.by_name;
  app.add_option("--freeze_parameters", by_name.prefixes, "what begins so is frozen")->group(group);
  app.add_option("--freeze_parameters_regex", by_name.regex, "what has this pattern in its name is frozen")
      ->group(group);
  app.add_option("--freeze_parameters_ratio", by_name.ratio, "part of all numbers that is frozen, from the inputs on")
      ->check(real_number({.least = 0, .most = 1}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--trainable_parameters", by_name.trainable_prefixes, "what begins so is trained, whatever froze it")
      ->group(group);
  app.add_option("--trainable_parameters_regex", by_name.trainable_regex,
                 "what has this pattern in its name is trained, whatever froze it")
      ->group(group);
  app.add_option("--freeze_trainable_layers", by_name.layers,
                 "of the language model so many of the last layers alone are trained; negative: of the first")
      ->check(whole_number(-kMostLayers, kMostLayers))
      ->group(group);
  app.add_option("--freeze_trainable_modules", by_name.layer_modules, "these parts of them alone: mlp,self_attn")
      ->delimiter(',')
      ->group(group);
  app.add_option("--freeze_extra_modules", by_name.extra_modules, "and, outside of layers: embed_tokens,lm_head")
      ->delimiter(',')
      ->group(group);
  if (!rates) return;
  app.add_option("--vit_lr", f.vit_lr, "learning rate of the towers (default: --learning_rate)")->group(group);
  app.add_option("--aligner_lr", f.aligner_lr, "learning rate of the projectors (default: --learning_rate)")
      ->group(group);
  app.add_option("--component_lr", f.component_lr, "learning rates by component: vision=1e-5,projector=1e-4")
      ->group(group);
}

}  // namespace lockstep
