#include "lockstep/cli/plan_flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/plan/max_memory.h"

namespace lockstep {

JobPlanOptions PlanFlags::options(const Env& env) const {
  JobPlanOptions out = given;
  out.job = sft.options(env);
  if (!device_memory.empty()) {
    out.device_bytes = parse_bytes(device_memory, "--device_memory");
    constexpr int64_t kLeastDevice = 1 << 20;  // "80" is 80 bytes
    if (out.device_bytes > 0 && out.device_bytes < kLeastDevice) {
      throw usage_error(fmt::format("--device_memory {}: expected the memory of a GPU, found {} bytes", device_memory,
                                    out.device_bytes),
                        "with its unit: --device_memory 80GiB");
    }
    if (out.device_bytes <= 0) {
      throw usage_error(fmt::format("--device_memory {}: expected more than 0 bytes", device_memory),
                        "for example --device_memory 80GiB");
    }
  }
  if (out.inference && sft.run.offloads("optimizer")) {
    throw usage_error("--inference: nothing is trained, so --offload optimizer has nothing to move",
                      "leave one of them out, or --offload params");
  }
  out.check();
  return out;
}

std::optional<PlanFlags> parse_plan_flags(const std::vector<std::string>& args) {
  PlanFlags flags;
  SftParser sft(flags.sft);
  CLI::App app("what each rank would hold and do, and what that needs: no weight is read and no GPU is needed",
               "lockstep plan");
  app.footer(
      "Takes all flags of lockstep sft, so that a command or its args.json can be tried first.\n\n"
      "Example:\n  lockstep plan --model my-model --dataset rows.jsonl --nproc 8 --device_memory 80GiB --deepspeed "
      "zero3");
  sft.add_to(app, SftParser::Verb::kPlan);
  app.add_option("--world", flags.given.world, "ranks in all (default: those of one machine)")
      ->check(whole_number(1, kMostRanks))
      ->group("Ranks");
  app.add_option("--device_memory", flags.device_memory,
                 "of each GPU, as 80GiB: for GPUs that are not here (default: what this machine has)")
      ->group("Ranks");
  app.add_option("--gpus", flags.given.gpus,
                 "of each machine, beside --device_memory (default: one for each local rank)")
      ->check(whole_number(1, 1024))
      ->group("Ranks");
  app.add_flag("--inference", flags.given.inference, "nothing is trained")->group("Training");
  app.add_flag("--json", flags.json, "as plan.json")->group("Output");
  app.add_option("--report", flags.report, "a picture of the memory, as an HTML file")->group("Output");
  const UsualFlags usual = {"model",
                            "dataset",
                            "nproc",
                            "world",
                            "deepspeed",
                            "device_memory",
                            "torch_dtype",
                            "batch_size",
                            "gradient_accumulation_steps",
                            "gradient_checkpointing",
                            "max_length",
                            "train",
                            "inference",
                            "json",
                            "report"};
  OtherStacks others{.verb = "plan", .notices = {}};
  if (!parse_flags(app, args, usual, &others)) return std::nullopt;
  flags.sft.notices = std::move(others.notices);
  flags.sft.run.given.unsaid = std::move(others.unsaid);
  sft.check(app);
  (void)flags.options(Env());
  return flags;
}

}  // namespace lockstep
