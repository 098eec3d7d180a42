// Two of a job's ranks as a group of their own, over the transport that the job's data takes: to measure one link
// alone. The roll call does not see it: its calls end in an error of their own after `patience`.
//
// Example:
//   const auto pair = connect_pair(world, *setup.meeting_point, peer, {.transport = setup.data->backend_name()});
//   pair->broadcast(value, 0, "there");
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/comm/world.h"

namespace lockstep {

struct PairOptions {
  std::string name = "pair";  // two ranks that meet again need another
  std::string transport;      // Communicator::backend_name() of the data group
  std::string device = "cpu";
  Clock::duration patience = std::chrono::seconds(20);  // of the meeting and of each call
};

/// The lower rank is 0 in the pair, the other 1. Throws CollectiveError when the peer does not come, or the two cannot
/// use this transport. Collective for the two.
std::unique_ptr<Communicator> connect_pair(const World& world, Rendezvous& meeting_point, int peer,
                                           const PairOptions& options);

}  // namespace lockstep
