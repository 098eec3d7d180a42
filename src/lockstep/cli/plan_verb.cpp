#include "lockstep/cli/plan_verb.h"

#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/session.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/plan/compatibility.h"

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
  add_component_flags(app, flags.components, /*rates=*/false);
  app.add_flag("--inference", inference, "nothing is trained")->group("Training");
  app.add_flag("--json", json, "as plan.json")->group("Output");
  if (!parse_flags(app, args)) return 0;
  if (world == 0) world = std::max(1, flags.run.nproc);
  const ModelFolder folder(flags.run.model, flags.run.without());
  flags.components.check_against(folder.model);
  PlanOptions options = flags.plan_options(world, flags.run.dtype().value_or(folder.dtype_of_config()));
  options.training = !inference;
  const Plan plan = make_plan(folder.model, options);
  const Compatibility components = compatibility(folder.model, plan);
  if (json) {
    Json out = parse_json(plan.json(), "the plan");
    out["components"] = components.json();
    std::cout << out.dump(1) << "\n";
  } else {
    std::cout << plan.print(folder.model) << "\n" << components.print();
  }
  components.require();
  return 0;
}

}  // namespace lockstep
