#include "lockstep/session/launch.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/gpus.h"

namespace lockstep {
namespace {

/// local_ranks(), and said where the number of GPUs decides.
int wanted_ranks(const LaunchRequest& request, const RunOptions& run, const Env& env) {
  const int ranks = local_ranks(run, env);
  if (ranks >= 2 && run.nproc == 0 && !env.has("NPROC_PER_NODE") && request.notice) {
    request.notice(fmt::format("{} GPUs, so {} ranks ({}); --nproc 1 or CUDA_VISIBLE_DEVICES chooses fewer", ranks,
                               ranks, run.zero.name()));
  }
  return ranks;
}

Launched start_ranks(const LaunchRequest& request, const RunOptions& run, const Env& env, int ranks) {
  check_guard(run.guard, World::from_env(env));
  Launched done;
  done.code = launch_ranks(request.argv, env,
                           {.num_processes = ranks,
                            .program = request.program,
                            .judge = run.judge,
                            .guard = run.guard,
                            .max_restarts = run.max_restarts,
                            .restart_argv = request.restart_argv,
                            .interrupted = &done.interrupted});
  return done;
}

}  // namespace

int local_ranks(const RunOptions& run, const Env& env) {
  if (run.nproc > 0) return run.nproc;
  if (const auto asked = env.integer("NPROC_PER_NODE")) return static_cast<int>(*asked);
  const int gpus = visible_gpus(env);
  if (run.device == "cpu" || gpus < 2 || device_of("auto", 0, env) == "cpu") return 1;
  return run.placement.device_map.empty() ? gpus : 1;  // with a map one drives all of them
}

std::optional<int> launch_if_asked(const LaunchRequest& request, const RunOptions& run, const Env& env) {
  const World world = World::from_env(env);
  const bool launched = world.source != "single process";
  if (launched && !world.needs_launch) {
    if (run.nproc > 0 && run.nproc != world.local_size) {
      throw usage_error(
          fmt::format("--nproc {}: {} has started {} ranks on this machine", run.nproc, world.source, world.local_size),
          "leave --nproc out under a launcher");
    }
    return std::nullopt;
  }
  const int ranks = world.needs_launch && run.nproc == 0 ? world.local_size : wanted_ranks(request, run, env);
  if (ranks <= 1 && !world.needs_launch) return std::nullopt;
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
