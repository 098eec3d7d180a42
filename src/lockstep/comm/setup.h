// Builds the communicators of a process: store, then the best transport for these ranks.
//
// Example:
//   CommSetup setup = connect(world, {.device = "cpu", .transport = Transport::kAuto, .patience = 600s});
//   setup.recorder->during(Phase::kData, "", [&] { … });
//   setup.data->all_gather(…);  agree(*setup.control, …);
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/guard/member.h"

namespace lockstep {

class Rendezvous;

/// kAuto: NCCL when the device is a GPU; otherwise shared memory when all ranks share a host and /dev/shm has room,
/// else Gloo.
enum class Transport { kAuto, kGloo, kShm, kNccl };
Transport transport_from_flag(const std::string& name);  // "auto", "gloo", "shm", "nccl"; throws UserError(kUsage)
std::string transport_name(Transport transport);

struct ConnectOptions {
  std::string device = "cpu";  // "cpu" or "cuda:0"
  Transport transport = Transport::kAuto;
  Clock::duration patience = std::chrono::minutes(10);
  Clock::duration rendezvous_patience = std::chrono::minutes(5);

  // The roll call. The agent's address when the launcher has one; else `spawn_agent` starts one for this node, asked of
  // its first rank only, and returns the address; the world says which node that is. Without either nobody watches.
  std::shared_ptr<Recorder> recorder{};
  std::string agent{};
  std::function<std::string(const World&)> spawn_agent{};
  std::function<void(const Ending&)> before_exit{};  // see MemberOptions

  bool keep_meeting_point = false;  // for further groups: CommSetup::meeting_point
};

struct CommSetup {
  std::unique_ptr<Communicator> data;           // parameters and gradients, on the device
  std::unique_ptr<Communicator> control;        // contracts, metrics, gathered objects, on the host
  std::shared_ptr<Recorder> recorder;           // what this rank does, for the roll call
  std::unique_ptr<Member> member;               // of the roll call; none where nobody watches
  std::shared_ptr<Rendezvous> meeting_point{};  // where it was asked for; none for one rank
};

/// Throws CollectiveError when ranks do not appear in time, naming how many of how many did and the address they meet
/// at.
CommSetup connect(const World& world, const ConnectOptions& options);

/// The same for ranks that have met already: threads in tests.
CommSetup connect_over(const World& world, Rendezvous& rendezvous, const ConnectOptions& options);

}  // namespace lockstep
