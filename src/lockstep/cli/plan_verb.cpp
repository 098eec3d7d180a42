#include "lockstep/cli/plan_verb.h"

#include <iostream>

#include <CLI/CLI.hpp>

#include "lockstep/cli/flags.h"
#include "lockstep/cli/session.h"
#include "lockstep/cli/train_flags.h"

namespace lockstep {

const char* const plan_summary = "print what each rank would hold and do, without loading weights";

int run_plan(const std::vector<std::string>& args, const Env&) {
  SftFlags flags;
  int world = 0;
  bool inference = false, json = false;
  CLI::App app(plan_summary, "lockstep plan");
  app.footer("Example:\n  lockstep plan --model my-model --deepspeed zero3 --world 8");
  add_run_flags(app, flags.run);
  app.add_option("--world", world, "ranks in all (default: --nproc, else 1)")
      ->check(CLI::PositiveNumber)
      ->group("Ranks");
  app.add_option("--gradient_checkpointing", flags.gradient_checkpointing, "recompute activations on the way back")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--vit_gradient_checkpointing", flags.vit_gradient_checkpointing, "the same for the vision tower")
      ->group("Training");
  app.add_option("--train", flags.train_components, "llm,vision,projector")->group("Training");
  app.add_option("--freeze_llm", flags.freeze_llm, "")->capture_default_str()->group("Training");
  app.add_option("--freeze_vit", flags.freeze_vit, "")->capture_default_str()->group("Training");
  app.add_option("--freeze_aligner", flags.freeze_aligner, "")->capture_default_str()->group("Training");
  app.add_option("--freeze_parameters", flags.freeze_parameters, "prefixes of blocks to freeze")->group("Training");
  app.add_flag("--inference", inference, "nothing is trained")->group("Training");
  app.add_flag("--json", json, "as plan.json")->group("Output");
  if (!parse_flags(app, args)) return 0;
  if (world == 0) world = std::max(1, flags.run.nproc);
  const ModelFolder folder(flags.run.model);
  PlanOptions options = flags.plan_options(world, flags.run.dtype().value_or(folder.dtype_of_config()));
  options.training = !inference;
  const Plan plan = make_plan(folder.model, options);
  std::cout << (json ? plan.json() : plan.print(folder.model)) << "\n";
  return 0;
}

}  // namespace lockstep
