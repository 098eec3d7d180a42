#include "lockstep/comm/world.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/slurm.h"

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

Variables operator+(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

World world_of(const Variables& variables) { return World::from_env(Env(variables)); }

std::string refusal(const Variables& variables) {
  try {
    world_of(variables);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  ADD_FAILURE() << "expected a refusal";
  return {};
}

const Variables kTorchrun{{"RANK", "5"},
                          {"LOCAL_RANK", "1"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},
                          {"GROUP_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.7"},
                          {"MASTER_PORT", "29511"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

const Variables kSlurm{{"SLURM_PROCID", "6"},
                       {"SLURM_LOCALID", "2"},
                       {"SLURM_NTASKS", "7"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_NNODES", "2"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_JOB_ID", "123456"},
                       {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                       {"SLURM_JOB_NODELIST", "gnode[10,20-22]"}};

TEST(World, IsOneProcessWhenNothingSaysOtherwise) {
  const World world = world_of({{"HOME", "/root"}});
  EXPECT_EQ(world.rank, 0);
  EXPECT_EQ(world.size, 1);
  EXPECT_EQ(world.source, "single process");
  EXPECT_FALSE(world.needs_launch);
}

TEST(World, ReadsTorchrun) {
  const World world = world_of(kTorchrun);
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(world.node, 1);
  EXPECT_EQ(world.num_nodes, 2);
  EXPECT_EQ(world.master_addr, "10.0.0.7");
  EXPECT_EQ(world.master_port, 29511);
  EXPECT_TRUE(world.agent_hosts_store);
  EXPECT_EQ(world.job, "") << "all jobs have the id that nobody chose";
  EXPECT_EQ(world_of(kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", "9"}}).job, "torchrun --rdzv_id 9");
  EXPECT_EQ(world.source, "torchrun");
}

TEST(World, WithoutAnAgentStoreRankZeroHosts) {
  EXPECT_FALSE(world_of(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).agent_hosts_store);
  EXPECT_FALSE(world_of(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", ""}}).agent_hosts_store);
}

TEST(World, KnowsItsOwnLauncher) {
  EXPECT_EQ(world_of(kTorchrun + Variables{{"LOCKSTEP_LAUNCHED", "1"}}).source, "lockstep --nproc");
}

TEST(World, TakesOneNodeWhenTheLocalSizeIsNotGiven) {
  const World world = world_of(
      {{"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "2000"}});
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.num_nodes, 1);
}

TEST(World, NamesContradictionsAndWhatIsMissing) {
  struct Case {
    Variables change;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {{{"RANK", "8"}}, {"wrong world size", "RANK=8", "WORLD_SIZE=8", "0 to 7"}},
      {{{"RANK", "-1"}}, {"wrong world size", "RANK=-1"}},
      {{{"WORLD_SIZE", "0"}}, {"wrong world size", "WORLD_SIZE=0", "at least 1"}},
      {{{"WORLD_SIZE", "4294967296"}, {"LOCAL_WORLD_SIZE", ""}}, {"WORLD_SIZE=4294967296", "at most 1048576"}},
      {{{"GROUP_RANK", "4294967296"}, {"GROUP_WORLD_SIZE", ""}}, {"GROUP_RANK=4294967296", "at most 1048576"}},
      {{{"LOCAL_RANK", "4"}}, {"wrong world size", "LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"}},
      {{{"LOCAL_WORLD_SIZE", "9"}}, {"wrong world size", "LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"}},
      {{{"RANK", ""}}, {"RANK is not set", "WORLD_SIZE=8"}},
      {{{"WORLD_SIZE", ""}}, {"WORLD_SIZE is not set", "RANK=5"}},
      {{{"MASTER_ADDR", ""}}, {"MASTER_ADDR is not set", "8 ranks"}},
      {{{"MASTER_PORT", ""}}, {"MASTER_PORT is not set"}},
      {{{"MASTER_PORT", "70000"}}, {"MASTER_PORT=70000", "65535"}},
      {{{"WORLD_SIZE", "eight"}}, {"WORLD_SIZE", "eight"}},
  };
  for (const auto& [change, words] : cases) {
    const std::string text = refusal(kTorchrun + change);
    for (const auto& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  }
}

TEST(World, ReadsSlurm) {
  const World world = world_of(kSlurm);
  EXPECT_EQ(world.rank, 6);
  EXPECT_EQ(world.size, 7);
  EXPECT_EQ(world.local_rank, 2);
  EXPECT_EQ(world.local_size, 3);
  EXPECT_EQ(world.node, 1);
  EXPECT_EQ(world.num_nodes, 2);
  EXPECT_EQ(world.master_addr, "gnode10");
  EXPECT_EQ(world.master_port, 12000 + (123456 * 7) % 20000);
  EXPECT_EQ(world.source, "Slurm");
}

TEST(World, GivesEachSlurmStepItsOwnPort) {
  const int first = world_of(kSlurm).master_port;
  EXPECT_NE(world_of(kSlurm + Variables{{"SLURM_STEP_ID", "1"}}).master_port, first);
  EXPECT_EQ(world_of(kSlurm + Variables{{"MASTER_PORT", "4242"}}).master_port, 4242);
}

TEST(World, ABatchScriptIsNoSlurmTask) {
  EXPECT_EQ(world_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}).size, 1);
}

TEST(World, TorchrunInsideSlurmIsTorchrun) { EXPECT_EQ(world_of(kSlurm + kTorchrun).source, "torchrun"); }

const Variables kMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

TEST(World, MpirunInsideASlurmStepIsMpi) {  // whose own variables say one task
  const World world = world_of(kMpi + Variables{{"SLURM_PROCID", "0"},
                                                {"SLURM_STEP_ID", "0"},
                                                {"SLURM_NTASKS", "1"},
                                                {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  EXPECT_EQ(world.source, "Open MPI");
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world_of(kSlurm + Variables{{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}).source, "Slurm");  // srun --mpi=pmi2
}

TEST(World, ThePlaceOfAPalsRankIsItsHosts) {
  const World world = world_of({{"PMI_RANK", "3"},
                                {"PMI_SIZE", "4"},
                                {"PMI_LOCAL_RANK", "1"},
                                {"PMI_LOCAL_SIZE", "2"},
                                {"MASTER_ADDR", "a"},
                                {"MASTER_PORT", "29501"}});
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 2);
}

/// Whoever starts one process a node has said nothing of ranks.
TEST(World, TheOneProcessOfANodeMayStartRanks) {
  const Variables one{{"SLURM_PROCID", "1"},           {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"},
                      {"SLURM_NODEID", "1"},           {"SLURM_NNODES", "2"},  {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                      {"SLURM_JOB_NODELIST", "a[1-2]"}};
  EXPECT_TRUE(world_of(one).may_launch);
  EXPECT_FALSE(world_of(kSlurm).may_launch);
  EXPECT_FALSE(world_of(kTorchrun).may_launch);
  EXPECT_FALSE(world_of(kMpi).may_launch);
  const Variables pod{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "23456"}};
  EXPECT_TRUE(world_of(pod).may_launch);
  EXPECT_TRUE(world_of(pod + Variables{{"PET_NPROC_PER_NODE", "auto"}, {"PET_NNODES", "2"}}).may_launch);
  EXPECT_FALSE(world_of(pod + Variables{{"NPROC_PER_NODE", "1"}}).may_launch);
}

TEST(World, NamesSlurmContradictions) {
  EXPECT_NE(refusal(kSlurm + Variables{{"SLURM_PROCID", "7"}}).find("SLURM_PROCID=7"), std::string::npos);
  EXPECT_NE(refusal(kSlurm + Variables{{"SLURM_NTASKS", ""}}).find("SLURM_STEP_NUM_TASKS is not set"),
            std::string::npos);
  EXPECT_NE(refusal(kSlurm + Variables{{"SLURM_JOB_NODELIST", ""}}).find("SLURM_JOB_NODELIST"), std::string::npos);
}

TEST(World, ReadsOpenMpiOnOneHost) {
  const World world = world_of({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                {"PMIX_NAMESPACE", "prterun-host-7@1"}});
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.local_rank, 3);
  EXPECT_EQ(world.master_addr, "127.0.0.1");
  EXPECT_GE(world.master_port, 12000);
  EXPECT_EQ(world.source, "Open MPI");
}

TEST(World, MpiOverSeveralHostsNeedsAnAddress) {
  const Variables variables{{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_NE(refusal(variables).find("MASTER_ADDR is not set"), std::string::npos);
  const World world = world_of(variables + Variables{{"MASTER_ADDR", "head"}, {"MASTER_PORT", "3000"}});
  EXPECT_EQ(world.node, 1);
  EXPECT_EQ(world.num_nodes, 2);
  EXPECT_FALSE(world.node_known) << "--map-by node deals them in turn";
  EXPECT_FALSE(world_of(kSlurm + Variables{{"SLURM_DISTRIBUTION", "cyclic"}}).node_known);
  const Variables bare{
      {"RANK", "1"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_FALSE(world_of(bare).node_known) << "by hand, on one host or on two";
  for (const auto& known : {kTorchrun, kSlurm, kSlurm + Variables{{"SLURM_DISTRIBUTION", "block:cyclic"}},
                            bare + Variables{{"LOCAL_WORLD_SIZE", "2"}}, Variables{}}) {
    EXPECT_TRUE(world_of(known).node_known);
  }
}

TEST(World, ReadsMpich) {
  const World world =
      world_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.size, 2);
  EXPECT_EQ(world.source, "MPI (PMI)");
}

TEST(World, RankWithoutLocalRankCountsNodes) {
  const Variables pod{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  const World one = world_of(pod);
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.size, 2);
  EXPECT_EQ(one.node, 1);
  EXPECT_EQ(one.num_nodes, 2);
  EXPECT_FALSE(one.needs_launch);

  const World eight = world_of(pod + Variables{{"NPROC_PER_NODE", "8"}});
  EXPECT_EQ(eight.rank, 8);
  EXPECT_EQ(eight.size, 16);
  EXPECT_EQ(eight.local_size, 8);
  EXPECT_TRUE(eight.needs_launch);

  // An operator that multiplies already.
  EXPECT_EQ(world_of(pod + Variables{{"WORLD_SIZE", "16"}, {"PET_NNODES", "2"}, {"PET_NPROC_PER_NODE", "8"}}).size, 16);
  EXPECT_NE(refusal(pod + Variables{{"WORLD_SIZE", "3"}, {"PET_NNODES", "2"}, {"PET_NPROC_PER_NODE", "8"}})
                .find("wrong world size: WORLD_SIZE=3"),
            std::string::npos);
}

TEST(World, ReadsPetVariables) {
  const World world = world_of({{"PET_NNODES", "4"},
                                {"PET_NPROC_PER_NODE", "2"},
                                {"PET_NODE_RANK", "3"},
                                {"PET_MASTER_ADDR", "trainer-node-0-0"},
                                {"PET_MASTER_PORT", "29500"}});
  EXPECT_EQ(world.rank, 6);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.master_addr, "trainer-node-0-0");
  EXPECT_EQ(world.master_port, 29500);
}

TEST(World, ReadsWhatMsSwiftStartsNodesWith) {
  const Variables node{
      {"NNODES", "2"}, {"NODE_RANK", "1"}, {"NPROC_PER_NODE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29501"}};
  const World world = world_of(node);
  EXPECT_EQ(world.rank, 4);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.node, 1);
  EXPECT_TRUE(world.needs_launch);
  EXPECT_EQ(world_of({{"NNODES", "1"}, {"NPROC_PER_NODE", "4"}}).source, "single process");
  EXPECT_NE(refusal({{"NNODES", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).find("is not set although NNODES=2"),
            std::string::npos)
      << refusal({{"NNODES", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
}

TEST(Slurm, ExpandsNodeLists) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"gpu[01-03,7],login", {"gpu01", "gpu02", "gpu03", "gpu7", "login"}},
      {"node1", {"node1"}},
      {"a[098-101]", {"a098", "a099", "a100", "a101"}},
      {"r[1-2]n[3,5]", {"r1n3", "r1n5", "r2n3", "r2n5"}},
      {"x[1]-ib,y", {"x1-ib", "y"}},
  };
  for (const auto& [list, hosts] : cases) EXPECT_EQ(expand_slurm_hosts(list), hosts) << list;
  EXPECT_EQ(first_slurm_host("gpu[01-03,7],login"), "gpu01");
}

TEST(Slurm, RefusesBrokenNodeLists) {
  for (const char* list : {"gpu[1-3", "gpu1-3]", "gpu[3-1]", "gpu[a-b]", "gpu[[1]]", ""}) {
    EXPECT_THROW(first_slurm_host(list), UserError) << list;
  }
}

TEST(Slurm, CountsTasksOfANode) {
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 0), 4);
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 1), 4);
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 2), 3);
  EXPECT_EQ(slurm_tasks_on_node("4(x2),3", 3), std::nullopt);
  EXPECT_EQ(slurm_tasks_on_node("", 0), std::nullopt);
}

}  // namespace
}  // namespace lockstep
