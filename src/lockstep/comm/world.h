// Who am I among whom: rank, size, host, and how the ranks find each other. Read from whichever launcher started us.
//
// Knows: lockstep's own launcher and torchrun (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_*, TORCHELASTIC_USE_AGENT_STORE),
// Slurm (SLURM_*), Open MPI / MPICH (OMPI_*, PMI_*), PyTorchJob (RANK and WORLD_SIZE without LOCAL_RANK are
// *node*-level), NNODES and NODE_RANK of ms-swift and LLaMA-Factory.
//
// Example:
//   const World world = World::from_env(Env::process());   // {rank 0, size 1} when nothing says otherwise
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

class Env;

struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int node = 0, num_nodes = 1;
  bool node_known = true;  // false: guessed, until the ranks meet (Meeting)
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  bool agent_hosts_store =
      false;  // torchrun's agent runs the store: rank 0 is a client too, and it may be of earlier rounds
  std::string source = "single process";  // which launcher was recognised, for messages
  std::string job;            // what its launcher calls it, the same on all ranks and no other job's; empty: nothing
  bool needs_launch = false;  // node-level variables only: this process should start local_size ranks, not be one
  bool may_launch = false;    // it is the one process of its node, and nobody has said that it is to be one rank
  std::string interface;      // network interface for Gloo (GLOO_SOCKET_IFNAME); empty: the one towards master_addr

  /// Throws UserError(kUsage): variables that contradict each other or are missing, by name, with what was found.
  static World from_env(const Env& env);
};

/// The nodes of SLURM_JOB_NODELIST's compressed form: "gpu[01-03,7],login" -> gpu01 gpu02 gpu03 gpu7 login.
std::string first_slurm_host(const std::string& node_list);

}  // namespace lockstep
