// The ranks of a task: how many this machine is to have, and starting them as processes of their own.
//
// Example:
//   LaunchRequest request{.argv = {program, "sft", "--model", "m", "--nproc", "2"}, .program = "lockstep sft"};
//   if (const auto code = launch_if_asked(request, options, env)) return *code;   // this process was the launcher
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/comm/world.h"
#include "lockstep/session/run_options.h"

namespace lockstep {

struct LaunchRequest {
  std::vector<std::string> argv;                                        // the command of one rank, its executable first
  std::string program = "lockstep";                                     // begins what people read
  std::function<int(const std::vector<std::string>& argv)> run_here{};  // as LaunchOptions
  std::function<void(const std::string& text)> notice{};                // for people: why there are so many ranks
  std::function<void(int code, const std::string& text, bool again)> conclude{};  // as LaunchOptions
  bool with_too_few_gpus = false;  // starts all the same: the ranks tell it with all else
};

/// How ranks have ended. A run that reached its end in the moment of a Ctrl-C has code 0 and was interrupted.
struct Launched {
  int code = 0;
  bool interrupted = false;
};

/// Ranks on this machine: as asked, else NPROC_PER_NODE, else one a GPU, else one.
int local_ranks(const RunOptions& run, const Env& env);

/// Starts the ranks and waits for them when several are wanted and no launcher has done so; then the exit code. Throws
/// UserError(kUsage) when RunOptions::nproc contradicts the launcher.
std::optional<int> launch_if_asked(const LaunchRequest& request, const RunOptions& run, const Env& env);

/// Starts the ranks, even a single one, as processes of their own and waits. No launcher has started this process.
Launched launch(const LaunchRequest& request, const RunOptions& run, const Env& env);

/// Throws UserError(kUsage): a strict guard over several nodes.
void check_guard(Guard guard, const World& world);

}  // namespace lockstep
