#include "lockstep/comm/world.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/slurm.h"

namespace lockstep {
namespace {

constexpr int kDefaultPort = 29500;

/// One integer variable and where it came from, so that errors can quote it.
struct Number {
  std::string name;
  std::optional<int64_t> value;

  std::string text() const { return value ? fmt::format("{}={}", name, *value) : name + " unset"; }
};

/// The first of `names` that is set; the first name when none is.
Number number(const Env& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = env.integer(name)) return {name, value};
  }
  return {*names.begin(), std::nullopt};
}

std::string text(const Env& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = env.text(name)) return *value;
  }
  return {};
}

/// A number of ranks; torchrun's words for "one for each device" state none.
Number number_of_ranks(const Env& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const std::string word = text(env, {name});
    if (word.empty()) continue;
    const bool counts_devices = word == "auto" || word == "gpu" || word == "cpu";
    return counts_devices ? Number{name, std::nullopt} : number(env, {name});
  }
  return {*names.begin(), std::nullopt};
}

int required(const Number& number, const std::string& source, const std::string& seen) {
  if (!number.value) {
    throw usage_error(fmt::format("{}: {} is not set although {}", source, number.name, seen),
                      fmt::format("set {}, or unset the others for a single process", number.name));
  }
  return static_cast<int>(*number.value);
}

constexpr int64_t kMostRanks = 1 << 20;  // a number that none of them fits would be another one

void check_most(const std::string& source, const Number& number) {
  if (!number.value || *number.value <= kMostRanks) return;
  throw usage_error(fmt::format("{}: wrong world size: {}, expected at most {}", source, number.text(), kMostRanks),
                    "is it the number of another thing?");
}

void check_range(const std::string& source, const Number& index, const Number& size) {
  check_most(source, size);
  if (!size.value) check_most(source, index);
  if (size.value && *size.value < 1) {
    throw usage_error(fmt::format("{}: wrong world size: {}, expected at least 1", source, size.text()));
  }
  if (index.value && size.value && (*index.value < 0 || *index.value >= *size.value)) {
    throw usage_error(fmt::format("{}: wrong world size: {} with {}, expected 0 to {}", source, index.text(),
                                  size.text(), *size.value - 1),
                      "every process needs a rank of its own below the world size");
  }
}

void check_local(const std::string& source, const Number& local, const Number& world) {
  if (local.value && world.value && *local.value > *world.value) {
    throw usage_error(fmt::format("{}: wrong world size: {} is more than {}", source, local.text(), world.text()),
                      "the ranks of one node cannot outnumber all ranks");
  }
}

void set_local(World& world, const Number& local_rank, const Number& local_size) {
  check_range(world.source, local_rank, local_size);
  world.local_rank = static_cast<int>(local_rank.value.value_or(0));
  world.local_size = static_cast<int>(local_size.value.value_or(1));
}

/// `stated`: how many ranks are here, by whoever started them.
void set_nodes(World& world, const Number& node, const Number& num_nodes, const Number& stated) {
  check_range(world.source, node, num_nodes);
  const int fallback_nodes = (world.size + world.local_size - 1) / world.local_size;
  world.num_nodes = static_cast<int>(num_nodes.value.value_or(fallback_nodes));
  world.node = static_cast<int>(node.value.value_or(std::min(world.rank / world.local_size, world.num_nodes - 1)));
  world.node_known = stated.value == world.size || (node.value && num_nodes.value);
}

/// MASTER_ADDR and MASTER_PORT, which must be given when the launcher promises them.
void set_master(World& world, const Env& env, bool promised) {
  const std::string addr = text(env, {"MASTER_ADDR", "PET_MASTER_ADDR"});
  const Number port = number(env, {"MASTER_PORT", "PET_MASTER_PORT"});
  if (promised && world.size > 1 && (addr.empty() || !port.value)) {
    throw usage_error(fmt::format("{}: {} is not set although the world has {} ranks", world.source,
                                  addr.empty() ? "MASTER_ADDR" : "MASTER_PORT", world.size),
                      "set MASTER_ADDR and MASTER_PORT to the host of rank 0 and a free port there");
  }
  if (!addr.empty()) world.master_addr = addr;
  if (port.value) {
    if (*port.value < 1 || *port.value > 65535) {
      throw usage_error(fmt::format("{}: {} is no port (1 to 65535)", world.source, port.text()));
    }
    world.master_port = static_cast<int>(*port.value);
  }
}

/// torchrun, this program's own launcher, and everything else that gives RANK, LOCAL_RANK, WORLD_SIZE to each process.
World from_rank_variables(const Env& env) {
  World world;
  world.source = env.has("LOCKSTEP_LAUNCHED")     ? "lockstep --nproc"
                 : env.has("TORCHELASTIC_RUN_ID") ? "torchrun"
                                                  : "RANK and WORLD_SIZE";
  const Number rank = number(env, {"RANK"});
  const Number size = number(env, {"WORLD_SIZE"});
  const Number local_rank = number(env, {"LOCAL_RANK"});
  const Number local_size = number(env, {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"});
  world.rank = required(rank, world.source, fmt::format("{} and {}", local_rank.text(), size.text()));
  world.size = required(size, world.source, fmt::format("{} and {}", rank.text(), local_rank.text()));
  check_range(world.source, rank, size);
  check_local(world.source, local_size, size);
  set_local(world, local_rank, local_size.value ? local_size : Number{"WORLD_SIZE", size.value});
  set_nodes(world, number(env, {"GROUP_RANK"}), number(env, {"GROUP_WORLD_SIZE"}), local_size);
  set_master(world, env, true);
  const std::string run = text(env, {"TORCHELASTIC_RUN_ID"});
  if (!run.empty() && run != "none") world.job = fmt::format("torchrun --rdzv_id {}", run);  // "none" is its default
  world.agent_hosts_store = text(env, {"TORCHELASTIC_USE_AGENT_STORE"}) == "True";
  return world;
}

World from_slurm(const Env& env) {
  World world;
  world.source = "Slurm";
  const Number rank = number(env, {"SLURM_PROCID"});
  const Number size = number(env, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  const Number node = number(env, {"SLURM_NODEID"});
  const Number num_nodes = number(env, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  world.rank = static_cast<int>(*rank.value);
  world.size = required(size, world.source, rank.text());
  check_range(world.source, rank, size);
  const std::string per_node = text(env, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  Number local_size{"SLURM_STEP_TASKS_PER_NODE",
                    slurm_tasks_on_node(per_node, static_cast<int>(node.value.value_or(0)))};
  if (!local_size.value) {
    local_size = {"tasks per node", num_nodes.value.value_or(1) <= 1 ? world.size : world.size / *num_nodes.value};
  }
  check_local(world.source, local_size, size);
  set_local(world, number(env, {"SLURM_LOCALID"}), local_size);
  const std::string named = text(env, {"SLURM_HET_JOB_ID", "SLURM_JOB_ID"});
  if (!named.empty()) world.job = fmt::format("Slurm job {}.{}", named, text(env, {"SLURM_STEP_ID", "SLURM_STEPID"}));
  set_nodes(world, node, num_nodes, local_size);
  if (world.num_nodes > 1) {
    // Dealt in turn, a node's ranks do not follow each other, and its agent would wait for another node's.
    const std::string dealt = text(env, {"SLURM_DISTRIBUTION"});
    if (!dealt.empty() && !dealt.starts_with("block")) world.node_known = false;
    const std::string nodes = text(env, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    if (nodes.empty() && text(env, {"MASTER_ADDR"}).empty()) {
      throw usage_error(
          fmt::format("Slurm: neither SLURM_JOB_NODELIST nor MASTER_ADDR is set although {}", num_nodes.text()),
          "start the ranks with srun, or set MASTER_ADDR");
    }
    if (!nodes.empty()) world.master_addr = first_slurm_host(nodes);
  }
  // A step of its own has a port of its own; below 32768, where Linux starts to hand out ports.
  const int64_t job = number(env, {"SLURM_JOB_ID", "SLURM_JOBID"}).value.value_or(0);
  const int64_t step = number(env, {"SLURM_STEP_ID", "SLURM_STEPID"}).value.value_or(0);
  world.master_port = static_cast<int>(12000 + (job % 20000 * 7 + step % 20000) % 20000);
  world.may_launch = world.local_size == 1 && world.size == world.num_nodes;
  set_master(world, env, false);
  return world;
}

struct MpiNames {
  const char *source, *rank, *size, *local_rank, *local_size;
};

World from_mpi(const Env& env, const MpiNames& names) {
  World world;
  world.source = names.source;
  const Number rank = number(env, {names.rank});
  const Number size = number(env, {names.size});
  const Number stated = number(env, {names.local_size});
  world.rank = static_cast<int>(*rank.value);
  world.size = required(size, world.source, rank.text());
  check_range(world.source, rank, size);
  check_local(world.source, stated, size);
  const Number local_size = stated.value ? stated : Number{names.size, size.value};
  Number local_rank = number(env, {names.local_rank});
  check_range(world.source, local_rank, local_size);
  if (!local_rank.value) local_rank = {names.rank, world.rank % *local_size.value};
  set_local(world, local_rank, local_size);
  set_nodes(world, {"node", std::nullopt}, {"nodes", std::nullopt}, stated);
  world.may_launch = world.size == 1;  // of others nothing says whether every host has one
  const std::string job =
      text(env, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "PMI_JOBID"});
  world.master_port = job.empty() ? kDefaultPort : static_cast<int>(12000 + std::hash<std::string>()(job) % 20000);
  set_master(world, env, world.local_size < world.size);
  return world;
}

/// RANK and WORLD_SIZE of pods (PyTorchJob), PET_* (Kubeflow Trainer), or NNODES and NODE_RANK (ms-swift, LLaMA-Factory): they count
/// nodes. Newer operators multiply
/// WORLD_SIZE by the ranks of a node, so both readings are accepted where PET_NNODES tells them apart.
World from_node_variables(const Env& env) {
  World world;
  world.source = env.has("PET_NNODES") ? "node-level PET_NNODES and PET_NODE_RANK"
                 : env.has("NNODES")   ? "node-level NNODES and NODE_RANK"
                                       : "node-level RANK and WORLD_SIZE";
  const Number node = number(env, {"PET_NODE_RANK", "NODE_RANK", "RANK"});
  const Number pods = number(env, {"WORLD_SIZE"});
  Number num_nodes = number(env, {"PET_NNODES", "NNODES"});
  const Number per_node = number_of_ranks(env, {"PET_NPROC_PER_NODE", "NPROC_PER_NODE"});
  const int64_t local = per_node.value.value_or(1);
  if (local < 1) throw usage_error(fmt::format("{}: {}, expected at least 1", world.source, per_node.text()));
  check_most(world.source, per_node);
  if (!num_nodes.value) num_nodes = pods;
  const int nodes = required(num_nodes, world.source, node.text());
  if (pods.value && *pods.value != nodes && *pods.value != nodes * local) {
    throw usage_error(
        fmt::format("{}: wrong world size: {} agrees with neither {} nodes nor {} nodes of {} ranks ({}, {})",
                    world.source, pods.text(), nodes, nodes, local, num_nodes.text(), per_node.text()),
        "make WORLD_SIZE the number of pods");
  }
  world.node = required(node, world.source, num_nodes.text());
  check_range(world.source, node, num_nodes);
  check_most(world.source, {fmt::format("{} times {}", num_nodes.text(), per_node.text()), nodes * local});
  world.num_nodes = nodes;
  world.local_size = static_cast<int>(local);
  world.size = nodes * world.local_size;
  world.rank = world.node * world.local_size;
  world.needs_launch = world.local_size > 1;
  world.may_launch = !per_node.value;
  set_master(world, env, true);
  return world;
}

}  // namespace

World World::from_env(const Env& env) {
  static constexpr MpiNames kMpi[] = {{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                      {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
                                       "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
                                      {"MPI (PALS)", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
                                      {"MPI (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
  const bool has_size = number(env, {"WORLD_SIZE"}).value.value_or(1) != 1;
  World world;
  const auto* const mpi = std::ranges::find_if(kMpi, [&](const MpiNames& m) {
    return env.has(m.rank) && (env.has(m.local_size) || std::string_view(m.local_size) != "PMI_LOCAL_SIZE");
  });
  // mpirun inside a step leaves the step's own variables, which count its daemons; Slurm's own PMI states no local rank.
  // One that stands around the whole job has left its own behind, and they count fewer.
  const auto count = [&](std::initializer_list<const char*> names) { return number(env, names).value.value_or(1); };
  const bool by_mpirun = mpi != std::end(kMpi) && env.has(mpi->local_rank) &&
                         count({mpi->size}) >= count({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  // Slurm sets SLURM_PROCID in a batch script too; only a step (srun) has tasks.
  const bool slurm_step = env.has("SLURM_PROCID") && (env.has("SLURM_STEP_ID") || env.has("SLURM_STEPID"));
  if (env.has("LOCAL_RANK") && (env.has("RANK") || has_size)) {
    world = from_rank_variables(env);
  } else if (slurm_step && !by_mpirun) {
    world = from_slurm(env);
  } else if (mpi != std::end(kMpi)) {
    world = from_mpi(env, *mpi);
  } else if (number(env, {"PET_NNODES", "NNODES"}).value.value_or(1) > 1 || env.has("RANK") || has_size) {
    world = from_node_variables(env);
  }
  world.interface = text(env, {"GLOO_SOCKET_IFNAME"});
  return world;
}

}  // namespace lockstep
