// `--nproc N`: starts N local ranks of this very command line, forwards signals, shows rank 0, hosts the agent that
// watches them, and leaves no orphan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/guard/diagnosis.h"

namespace lockstep {

class Env;

/// kDefault: the roll call compares calls a moment after they were made. kStrict: before they start. kOff: ranks have
/// no roll call; only the ends of their processes are seen.
enum class Guard { kDefault, kStrict, kOff };

struct LaunchOptions {
  int num_processes = 1;
  int grace_seconds = 10;            // between a second signal and SIGKILL for the rest
  std::string program = "lockstep";  // begins what people read
  JudgeOptions judge{};
  Guard guard = Guard::kDefault;
  int max_restarts = 0;  // after failures that may not come again
  /// What `argv` would do if it were started: then ranks are copies of this process, where it has no other thread, and need not
  /// load their libraries again. Called in the copy, with its environment set; returns its exit code.
  std::function<int(const std::vector<std::string>& argv)> run_here{};
  /// Told why the ranks were ended, and whether they are started again; empty: it is printed.
  std::function<void(int code, const std::string& text, bool again)> conclude{};
  bool* interrupted = nullptr;  // set to whether a signal asked the ranks to stop, however they have ended
};

/// Runs `argv`, which begins with the path of a program, num_processes times with RANK, LOCAL_RANK, WORLD_SIZE,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, OMP_NUM_THREADS (cores / ranks when unset), LOCKSTEP_AGENT,
/// LOCKSTEP_LAUNCHED=1 and LOCKSTEP_LAUNCH_ID, by which ranks that are started again know what those before them have left. Children die with the thread that calls this (PR_SET_PDEATHSIG). Rank 0 keeps the terminal;
/// other ranks' lines carry "[rank N]". The node's agent watches the ranks from here; when it ends the job, its
/// diagnosis is the last thing printed and its code is returned. Otherwise returns 0 when all succeeded, else the code
/// of the first rank that did not. No process of the ranks stays behind.
int launch_ranks(const std::vector<std::string>& argv, const Env& env, const LaunchOptions& options);

}  // namespace lockstep
