// This process among its ranks: started, placed on a device, connected, and agreed with the others on what is to be
// done.
//
// Example:
//   if (const auto code = launch_if_asked("sft", args, flags, env)) return *code;   // this process was the launcher
//   Job job = start_job("sft", flags, env);
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/communication.h"
#include "lockstep/base/env.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/comm/setup.h"

namespace lockstep {

struct Job {
  World world;
  std::string device = "cpu";  // the first that this rank drives
  int num_devices = 1;         // GPUs, or virtual ones, behind one another
  CommSetup comm;

  bool reports() const { return world.rank == 0; }
  Communicator& data() { return *comm.data; }
  Communicator& control() { return *comm.control; }
};

/// Ranks on this machine: as asked, else NPROC_PER_NODE, else one a GPU, else one.
int local_ranks(const RunFlags& flags, const Env& env);

/// Starts the ranks and waits for them when several are wanted and no launcher has done so; then the exit code. Throws
/// UserError(kUsage) when --nproc contradicts the launcher.
std::optional<int> launch_if_asked(const std::string& verb, const std::vector<std::string>& args, const RunFlags& flags,
                                   const Env& env);

/// How ranks have ended. A run that reached its end in the moment of a Ctrl-C has code 0 and was interrupted.
struct Launched {
  int code = 0;
  bool interrupted = false;
};
/// Starts the ranks, even a single one, as processes of their own and waits. No launcher has started this process.
Launched launch(const std::string& verb, const std::vector<std::string>& args, const RunFlags& flags, const Env& env);

struct JobOptions {
  bool keep_meeting_point = false;                   // for further groups of ranks
  std::function<void(const Ending&)> before_exit{};  // the roll call ends a process whose main thread is stuck
};

/// Throws UserError(kUsage), CollectiveError.
Job start_job(const std::string& verb, const RunFlags& flags, const Env& env, const JobOptions& options = {});

/// Compares named texts with the other ranks'. Throws the same SharedError on all, naming what differs, where, and both
/// values. Collective.
void agree_on(Communicator& control, const std::vector<std::pair<std::string, std::string>>& facts);

/// What the ranks' communication has cost so far; empty for one rank and with --comm_figures off. Collective, for the
/// end of a job.
CommunicationFigures communication_of(Job& job, const RunFlags& flags);

/// Prints the table of it where there is one. Collective.
void tell_communication(Job& job, const RunFlags& flags, std::ostream& out);

/// A value of rank 0 on every rank. Collective.
std::string from_rank_0(Communicator& control, const std::string& value, const Label& label);

}  // namespace lockstep
