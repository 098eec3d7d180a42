// `lockstep agent`: the node's watcher as a process of its own, where torchrun, Slurm or mpirun have started the ranks.
// Nobody types it; the first rank of each node starts it, and it ends with the node's last rank.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/comm/world.h"

namespace lockstep {

int run_agent(const std::vector<std::string>& args, const Env& env);

/// Starts one for the ranks of this node and returns its address. It outlives this process. Throws Error(kInternal).
std::string spawn_agent(const std::string& program, const RunFlags& flags, const World& world);

}  // namespace lockstep
