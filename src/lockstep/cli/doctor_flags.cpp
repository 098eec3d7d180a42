#include "lockstep/cli/doctor_flags.h"

#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/cli/component_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/verbs.h"

namespace lockstep {

std::optional<DoctorFlags> parse_doctor_flags(const std::vector<std::string>& args) {
  DoctorFlags flags;
  flags.given.job.output_dir = "output";
  flags.run.model_is_needed = false;
  flags.run.soft_patience = 60;  // the first rank alone looks at the data, and says itself how far it has come
  CLI::App app(doctor_summary, "lockstep doctor");
  app.footer(
      "Looks at: versions (program, LibTorch, CUDA, driver, NCCL, processor), machine (/dev/shm, disk, open files,\n"
      "clock, memory, cores), links (bandwidth and latency of every pair of ranks), checkpoint (every tensor's name,\n"
      "dtype and shape; tokenizer; processor), plan (bytes that each rank holds), data (64 rows of each file).\n"
      "Each line says ok, warning or failure, and below it what repairs it. No check stops another.\n"
      "Exit code: 0 without a failure, else that of the first: 2 usage or machine, 3 data, 4 checkpoint, 5 memory,\n"
      "6 communication.\n\n"
      "Examples:\n"
      "  lockstep doctor                                             the machine and the installation alone\n"
      "  lockstep doctor --nproc 4                                   and the links between four ranks\n"
      "  lockstep doctor --model DIR --dataset train.jsonl --deepspeed zero3 --nproc 8 --output_dir /data/run\n"
      "  torchrun --nnodes 2 … --no-python lockstep doctor --json    every pair over the network, for programs");
  add_run_flags(app, flags.run);
  app.add_option("--dataset,--val_dataset", flags.given.job.dataset, kRowFiles)->group("Data");
  add_row_flags(app, flags.rows);
  add_component_flags(app, flags.given.job.components, /*rates=*/false);
  app.add_flag("--inference", flags.given.inference, "the job trains nothing")->group("Training");
  app.add_option("--output_dir", flags.given.job.output_dir, "where the run would write")
      ->capture_default_str()
      ->group("Output");
  app.add_flag("--json", flags.json, "for programs: {checks, links, ok, warnings, failures, exit_code}")
      ->group("Output");
  const UsualFlags usual = {"model", "dataset", "nproc", "deepspeed", "train", "inference", "output_dir", "json"};
  OtherStacks others{.verb = "doctor", .notices = {}};
  if (!parse_flags(app, args, usual, &others)) return std::nullopt;
  flags.notices = std::move(others.notices);
  for (const char* flag : {"--device_map", "--max_memory", "--memory_limit", "--offload", "--virtual_devices"}) {
    if (app.count(flag) == 0) continue;
    flags.notices.push_back(fmt::format(
        "{} has no effect: what each rank holds is of one device, without a limit (lockstep plan heeds it)", flag));
  }
  (void)flags.options(Env());
  return flags;
}

ExamineOptions DoctorFlags::options(const Env& process_env) const {
  const Env env = run.with_variables(process_env);
  ExamineOptions out = given;
  out.job.run = run.options(env);
  out.job.rows = rows.options(env);
  return out;
}

}  // namespace lockstep
