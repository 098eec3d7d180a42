// `--nproc N`: starts N local ranks of this very command line, forwards signals, shows rank 0, and leaves no orphan.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

class Env;

struct LaunchOptions {
  int num_processes = 1;
  int grace_seconds = 10;  // between the first death (or a second signal) and SIGKILL for the rest
};

/// Runs `argv` num_processes times with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
/// OMP_NUM_THREADS (cores / ranks when unset) and LOCKSTEP_LAUNCHED=1. Children die with the launcher
/// (PR_SET_PDEATHSIG). Rank 0 keeps the terminal; other ranks' lines carry "[rank N]". The first rank that fails
/// decides: others get SIGTERM, then SIGKILL after the grace. Returns the exit code of the first failing rank (128 +
/// signal when killed), 0 when all succeeded.
int launch_ranks(const std::vector<std::string>& argv, const Env& env, const LaunchOptions& options);

}  // namespace lockstep
