// The watcher of one node's ranks as a process of its own, where torchrun, Slurm or mpirun have started the ranks. It
// is a program that hosts an Agent, prints its address as its first line, and ends with the node's last rank.
//
// Example:
//   options.spawn_agent = [&](const World& world) { return spawn_agent({.argv = {"/usr/bin/lockstep", "agent"}, .judge = judge}, world); };
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/guard/diagnosis.h"

namespace lockstep {

struct AgentCommand {
  std::vector<std::string> argv;     // how the command line begins: the path of the program, and its verb
  std::string program = "lockstep";  // begins what people read
  JudgeOptions judge{};              // its seconds, soft and hard
  bool strict = false;
};

/// What follows argv: --program, --node, --num_nodes, --first_rank, --local_ranks, --world_size, --patience,
/// --soft_patience, --guard, each with its value.
std::vector<std::string> agent_command_line(const AgentCommand& command, const World& world);

/// Starts one for the ranks of this node and returns its address. It outlives this process. Throws Error(kInternal).
std::string spawn_agent(const AgentCommand& command, const World& world);

}  // namespace lockstep
