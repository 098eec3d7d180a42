#include "lockstep/session/launch.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/gpus.h"

namespace lockstep {
namespace {

/// local_ranks(), and said where the number of GPUs decides.
int wanted_ranks(const LaunchRequest& request, const RunOptions& run, const Env& env) {
  const int ranks = local_ranks(run, env);
  if (ranks >= 2 && run.nproc == 0 && !env.has("NPROC_PER_NODE") && !env.has("PET_NPROC_PER_NODE") && request.notice) {
    request.notice(fmt::format("{} GPUs, so {} ranks ({}); --nproc 1 or CUDA_VISIBLE_DEVICES chooses fewer", ranks,
                               ranks, run.zero.name()));
  }
  return ranks;
}

/// That ranks which are started here can drive: all see what this process sees.
int gpus_of_ranks(const RunOptions& run) {
  if (run.device == "cpu" || run.placement.virtual_devices > 0 || !has_cuda_library()) return 0;
  return GpuDriver::of_process().count();
}

/// That there are none at all the ranks say.
void require_gpus(const RunOptions& run, int ranks) {
  const int gpus = gpus_of_ranks(run);
  if (gpus == 0 || ranks <= gpus) return;
  throw usage_error(
      fmt::format("--device {}: {} ranks on this machine need a GPU each, found {}", run.device, ranks, gpus),
      "start fewer ranks with --nproc, or use --device cpu");
}

Launched start_ranks(const LaunchRequest& request, const RunOptions& run, const Env& env, int ranks) {
  check_guard(run.guard, World::from_env(env));
  if (!request.with_too_few_gpus) require_gpus(run, ranks);
  // Copies of a process that has asked a driver for its GPUs are not made: CUDA does not bear that. Where there is none, nothing
  // of CUDA has begun.
  std::function<int(const std::vector<std::string>& argv)> run_here;
  if (gpus_of_ranks(run) == 0 && request.run_here) {
    run_here = [here = request.run_here, own = read_memory()](const std::vector<std::string>& argv) {
      settles_like(own);
      return here(argv);
    };
  }
  Launched done;
  done.code = launch_ranks(request.argv, env,
                           {.num_processes = ranks,
                            .program = request.program,
                            .judge = run.judge,
                            .guard = run.guard,
                            .max_restarts = run.max_restarts,
                            .run_here = run_here,
                            .conclude = request.conclude,
                            .interrupted = &done.interrupted});
  return done;
}

}  // namespace

int local_ranks(const RunOptions& run, const Env& env) {
  constexpr int64_t kMostHere = 4096;  // as for --nproc
  if (run.nproc > 0) return run.nproc;
  for (const char* name : {"PET_NPROC_PER_NODE", "NPROC_PER_NODE"}) {
    const std::string word = env.text(name).value_or("");
    if (word.empty() || word == "auto" || word == "gpu" || word == "cpu") continue;  // torchrun's: by the devices
    const auto asked = env.integer(name);
    if (*asked >= 1 && *asked <= kMostHere) return static_cast<int>(*asked);
    throw usage_error(fmt::format("{}: expected a number of ranks from 1 to {}, found {}", name, kMostHere, *asked),
                      "leave the variable out for one rank a GPU, else one");
  }
  if (run.device == "cpu") return 1;
  const GpuDriver& driver = GpuDriver::of_process();
  if (!driver.failure.empty()) return 1;  // told where the rank's device is chosen
  const int gpus = driver.count();
  if (gpus < 2 || device_of(run.device, 0) == "cpu") return 1;
  return run.placement.device_map.empty() ? gpus : 1;  // with a map one drives all of them
}

std::optional<int> launch_if_asked(const LaunchRequest& request, const RunOptions& run, const Env& env) {
  const World world = World::from_env(env);
  const bool launched = world.source != "single process";
  if (launched && !world.needs_launch && !world.may_launch) {
    if (run.nproc > 0 && run.nproc != world.local_size) {
      throw usage_error(
          fmt::format("--nproc {}: {} has started {} ranks on this machine", run.nproc, world.source, world.local_size),
          "leave --nproc out under a launcher");
    }
    return std::nullopt;
  }
  // Hosts may have other numbers of GPUs: how many ranks each has is to be said, and the same on all.
  const bool says = run.nproc > 0 || env.has("NPROC_PER_NODE") || env.has("PET_NPROC_PER_NODE");
  if (world.may_launch && world.size > 1 && !says) {
    const int gpus = local_ranks(run, env);
    if (gpus > 1 && request.notice) {
      request.notice(
          fmt::format("{} has started one process on this machine, which is one rank with one of {} GPUs; "
                      "--nproc {} on every host starts one for each",
                      world.source, gpus, gpus));
    }
    return std::nullopt;
  }
  const int ranks = world.needs_launch && run.nproc == 0 ? world.local_size : wanted_ranks(request, run, env);
  if (ranks <= 1 && !world.needs_launch) return std::nullopt;
  if (world.may_launch && usable_cores() < ranks && request.notice) {
    request.notice(
        fmt::format("{} ranks share {} core{}, which is what {} gives this process; --cpus-per-task or "
                    "--bind-to none gives more",
                    ranks, usable_cores(), usable_cores() == 1 ? "" : "s", world.source));
  }
  return start_ranks(request, run, env, ranks).code;
}

Launched launch(const LaunchRequest& request, const RunOptions& run, const Env& env) {
  return start_ranks(request, run, env, wanted_ranks(request, run, env));
}

void check_guard(Guard guard, const World& world) {
  if (guard != Guard::kStrict || world.num_nodes == 1) return;
  throw usage_error("--guard strict: the ranks stand on several nodes, and strict compares through the agent of one",
                    "use --guard default, which compares over nodes too, a moment after the call");
}

}  // namespace lockstep
