// Slurm's compressed lists: which hosts, how many tasks on each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// "gpu[01-03,7],login" -> gpu01 gpu02 gpu03 gpu7 login. Throws UserError(kUsage) when brackets do not match or a range
/// runs backwards.
std::vector<std::string> expand_slurm_hosts(const std::string& node_list);

/// Tasks on one node of "4(x2),3" (nodes 0 and 1 have 4, node 2 has 3); nothing when the list is empty or too short.
std::optional<int64_t> slurm_tasks_on_node(const std::string& tasks_per_node, int node);

}  // namespace lockstep
