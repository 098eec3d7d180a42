#include "lockstep/cli/job.h"

#include <filesystem>
#include <iostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/gpus.h"
#include "lockstep/comm/launcher.h"
#include "lockstep/comm/together.h"

namespace lockstep {
namespace {

/// Ranks on this machine: as asked, else NPROC_PER_NODE, else one a GPU, else one.
int wanted_ranks(const RunFlags& flags, const Env& env) {
  if (flags.nproc > 0) return flags.nproc;
  if (const auto asked = env.integer("NPROC_PER_NODE")) return static_cast<int>(*asked);
  const int gpus = visible_gpus(env);
  if (flags.device == "cpu" || gpus < 2 || device_of("auto", 0, env) == "cpu") return 1;
  std::cout << fmt::format("{} GPUs, so {} ranks ({}); --nproc 1 or CUDA_VISIBLE_DEVICES chooses fewer\n", gpus, gpus,
                           flags.zero().name());
  return gpus;
}

}  // namespace

std::optional<int> launch_if_asked(const std::string& verb, const std::vector<std::string>& args, const RunFlags& flags,
                                   const Env& env) {
  const World world = World::from_env(env);
  const bool launched = world.source != "single process";
  if (launched && !world.needs_launch) {
    if (flags.nproc > 0 && flags.nproc != world.local_size) {
      throw usage_error(fmt::format("--nproc {}: {} has started {} ranks on this machine", flags.nproc, world.source,
                                    world.local_size),
                        "leave --nproc out under a launcher");
    }
    return std::nullopt;
  }
  const int ranks = world.needs_launch && flags.nproc == 0 ? world.local_size : wanted_ranks(flags, env);
  if (ranks <= 1 && !world.needs_launch) return std::nullopt;
  std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string(), verb};
  argv.insert(argv.end(), args.begin(), args.end());
  std::cout.flush();
  return launch_ranks(argv, env, {.num_processes = ranks});
}

Job start_job(const RunFlags& flags, const Env& env) {
  Job job{.world = World::from_env(env)};
  job.device = device_of(flags.device, job.world.local_rank, env);
  const auto patience =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(flags.patience_seconds));
  job.comm = connect(job.world, {.device = job.device,
                                 .transport = transport_from_flag(flags.transport),
                                 .patience = patience,
                                 .rendezvous_patience = std::min<Clock::duration>(patience, std::chrono::minutes(5))});
  return job;
}

void agree_on(Communicator& control, const std::vector<std::pair<std::string, std::string>>& facts) {
  for (const auto& [name, mine] : facts) {
    const auto all = control.all_gather_bytes(mine, "compare " + name);
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw SharedError(
          ExitCode::kUsage,
          fmt::format("the ranks do not agree on the {}: rank 0 has {}, rank {} has {}", name, all[0], rank, all[rank]),
          "all ranks need the same command line, files and version of lockstep");
    }
  }
}

std::string from_rank_0(Communicator& control, const std::string& value, std::string_view label) {
  return control.all_gather_bytes(control.rank() == 0 ? value : "", label).at(0);
}

}  // namespace lockstep
