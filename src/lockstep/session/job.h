// This process among its ranks: placed on a device, connected, and watched.
//
// Example:
//   Job job = start_job(options, env, {.program = "my-program"});
//   if (job.reports()) std::cout << job.world.size << " ranks\n";
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/communication.h"
#include "lockstep/base/env.h"
#include "lockstep/comm/setup.h"
#include "lockstep/session/run_options.h"
#include "lockstep/tensor/deterministic.h"

namespace lockstep {

struct Job {
  World world;
  std::string device = "cpu";                            // the first that this rank drives
  int num_devices = 1;                                   // GPUs, or virtual ones, behind one another
  std::unique_ptr<DeterministicOps> deterministic = {};  // where that was asked for: as long as the job lasts
  CommSetup comm;

  bool reports() const { return world.rank == 0; }
  bool on_cpu() const { return device == "cpu"; }
  std::vector<std::string> gpus() const;  // that this rank drives: "cuda:2", "cuda:3"
  Communicator& data() { return *comm.data; }
  Communicator& control() { return *comm.control; }
};

struct JobOptions {
  std::string program = "lockstep";          // begins what people read
  std::shared_ptr<Recorder> recorder = {};   // what this rank does, for the roll call; empty: a new one
  std::vector<std::string> agent_command{};  // {"…/lockstep", "agent"}: starts the watcher of a node where a foreign
                                             // launcher has started the ranks; empty: nobody watches there
  bool keep_meeting_point = false;           // for further groups of ranks
  std::function<void(const Ending&)> before_exit{};  // the roll call ends a process whose main thread is stuck
};

/// The world is read from `env`, as launchers set it. Throws UserError(kUsage), CollectiveError.
Job start_job(const RunOptions& run, const Env& env, const JobOptions& options = {});

/// What the ranks' communication has cost so far; empty for one rank and with CommFigures::kOff. Collective, for the
/// end of a job.
CommunicationFigures communication_of(Job& job, CommFigures wanted);

}  // namespace lockstep
