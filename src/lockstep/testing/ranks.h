// N ranks as threads of one process, each with its own communicators: how everything collective is tested.
//
// Example:
//   run_ranks(3, [](Rank& rank) { rank.data().barrier("start"); });
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/setup.h"

namespace lockstep {

class Agent;

class Rank {
 public:
  Rank(World world, CommSetup setup);
  int id() const { return world_.rank; }
  int size() const { return world_.size; }
  const World& world() const { return world_; }
  Communicator& data() { return *setup_.data; }
  Communicator& control() { return *setup_.control; }

 private:
  World world_;
  CommSetup setup_;
};

struct RanksOptions {
  Transport transport = Transport::kShm;  // or kGloo; one rank is always solo
  Clock::duration patience = std::chrono::seconds(60);
  std::function<std::string(int rank)> device{};  // "fakegpu:1"; the CPU without
  Agent* agent = nullptr;                         // borrowed: adopts the ranks, and judges what their boards show
};

/// Runs `body` on n threads; rethrows the first exception (by rank). LibTorch is set to one thread.
void run_ranks(int n, const std::function<void(Rank&)>& body, const RanksOptions& options = {});

}  // namespace lockstep
