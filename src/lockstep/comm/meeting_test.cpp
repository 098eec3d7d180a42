#include "lockstep/comm/meeting.h"

#include <atomic>
#include <future>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

struct Come {
  std::string place;
  int local_rank;
  Reach reach = {};
};

/// Each rank's world once all have met, as "node/nodes local size"; or what it threw.
std::vector<std::string> met(const std::vector<Come>& ranks, bool node_known = false) {
  const auto rendezvous = Rendezvous::in_process();
  std::vector<std::future<std::string>> all;
  for (size_t i = 0; i < ranks.size(); ++i) {
    all.push_back(std::async(std::launch::async, [&, i] {
      Recorder recorder;
      const World world{.rank = static_cast<int>(i),
                        .size = static_cast<int>(ranks.size()),
                        .local_rank = ranks[i].local_rank,
                        .local_size = 7,
                        .node = 5,
                        .num_nodes = 6,
                        .node_known = node_known};
      try {
        const World placed =
            Meeting(world, *rendezvous, std::chrono::seconds(20), recorder, ranks[i].place, ranks[i].reach).arrive();
        return fmt::format("{}/{} {}", placed.node, placed.num_nodes, placed.local_size);
      } catch (const CollectiveError& error) {
        return error.message() + "; " + error.hint();
      }
    }));
  }
  std::vector<std::string> out;
  for (auto& one : all) out.push_back(one.get());
  return out;
}

using Worlds = std::vector<std::string>;

TEST(Meeting, RanksAreOfTheMachineThatTheyCameFrom) {
  EXPECT_EQ(met({{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}), (Worlds{"0/2 2", "0/2 2", "1/2 2", "1/2 2"}));
  // mpirun --map-by node, srun --distribution=cyclic
  EXPECT_EQ(met({{"a", 0}, {"b", 0}, {"a", 1}, {"b", 1}}), (Worlds{"0/2 2", "1/2 2", "0/2 2", "1/2 2"}));
  // uneven: a host with fewer slots
  EXPECT_EQ(met({{"a", 0}, {"a", 1}, {"a", 2}, {"b", 0}}), (Worlds{"0/2 3", "0/2 3", "0/2 3", "1/2 1"}));
  // two nodes that are one machine
  EXPECT_EQ(met({{"a", 0}, {"a", 0}, {"a", 1}, {"a", 1}}), (Worlds{"0/2 2", "1/2 2", "0/2 2", "1/2 2"}));
}

TEST(Meeting, WhatTheLauncherSaysOfNodesStays) {
  EXPECT_EQ(met({{"a", 0}, {"b", 0}}, true), (Worlds{"5/6 7", "5/6 7"}));
}

TEST(Meeting, LocalRanksThatNobodyCountedAreNamed) {
  for (const auto& said : met({{"a", 0}, {"a", 1}, {"b", 2}, {"b", 3}})) {  // on every rank: none waits for the others
    EXPECT_NE(said.find("2 ranks came from b, and one of them is local rank 3"), std::string::npos) << said;
  }
}

TEST(Meeting, AHostThatNobodyElseReachesIsNamed) {
  const Reach own{.address = "127.0.0.1", .interface = "eth7", .interface_address = "10.0.0.7"};
  const Reach other{.address = "10.0.0.8", .interface = "eth7", .interface_address = "10.0.0.8"};
  for (const auto& said : met({{"a/1", 0, own}, {"a/1", 1, own}, {"b/2", 0, other}})) {  // on every rank
    EXPECT_NE(said.find("MASTER_ADDR=127.0.0.1 leads to 127.0.0.1 on "), std::string::npos) << said;
    EXPECT_NE(said.find("rank 0 on "), std::string::npos) << said;
    EXPECT_NE(said.find("cannot be reached from rank 2 on "), std::string::npos) << said;
    EXPECT_NE(said.find("/etc/hosts; or set GLOO_SOCKET_IFNAME=eth7 on "), std::string::npos) << said;
    EXPECT_NE(said.find("or MASTER_ADDR=10.0.0.7 on all hosts"), std::string::npos) << said;
  }
  // One machine reaches itself so; and where an interface was named, its address is not asked for.
  EXPECT_EQ(met({{"a/1", 0, own}, {"a/1", 0, own}}), (Worlds{"0/2 1", "1/2 1"}));
  EXPECT_EQ(met({{"a/1", 0, {}}, {"b/2", 0, other}}), (Worlds{"0/2 1", "1/2 1"}));
}

TEST(Meeting, AnotherJobsRanksAreSentAwayAndDoNotDisturb) {
  const auto rendezvous = Rendezvous::in_process();
  const auto come = [&](int rank, const std::string& job) -> std::string {
    Recorder recorder;
    const World world{.rank = rank, .size = 2, .local_size = 1, .num_nodes = 2, .node_known = true, .job = job};
    try {
      Meeting(world, *rendezvous, std::chrono::seconds(20), recorder).arrive();
      return "met";
    } catch (const CollectiveError& error) {
      return error.message();
    }
  };
  auto first = std::async(std::launch::async, come, 0, "Slurm job 5.0");
  for (const int rank : {0, 1}) {
    while (!rendezvous->look(meeting_key("arrived", 0))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::string said = come(rank, "Slurm job 6.0");
    EXPECT_NE(said.find(fmt::format("rank {} of 2 (Slurm job 6.0): another job meets at ", rank)), std::string::npos);
    EXPECT_NE(said.find(": Slurm job 5.0, opened by process "), std::string::npos) << said;
  }
  EXPECT_EQ(come(1, "Slurm job 5.0"), "met");
  EXPECT_EQ(first.get(), "met");
}

/// The meeting point goes with rank 0: whoever else tells of a quarrel first, rank 0 stays until all have read it.
TEST(Meeting, RankZeroIsTheLastToLeaveAQuarrel) {
  const auto rendezvous = Rendezvous::in_process();
  std::atomic<bool> left = false, left_too_soon = false;
  const auto come = [&](int rank, int size) -> std::string {
    Recorder recorder;
    const World world{.rank = rank, .size = size, .local_size = 1, .num_nodes = size, .node_known = true};
    try {
      Meeting(world, *rendezvous, std::chrono::seconds(20), recorder).arrive();
      return "met";
    } catch (const CollectiveError& error) {
      if (rank == 0) left = true;
      return error.message();
    }
  };
  auto first = std::async(std::launch::async, come, 0, 3);
  auto other = std::async(std::launch::async, come, 2, 4);  // it finds rank 0, and tells
  auto slow = std::async(std::launch::async, [&] {
    while (!rendezvous->look("leaves/0")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    left_too_soon = left.load();
    return come(1, 3);
  });
  for (auto* one : {&first, &other, &slow}) {
    const std::string said = one->get();
    EXPECT_NE(said.find("was started as one of"), std::string::npos) << said;
  }
  EXPECT_FALSE(left_too_soon);
}

}  // namespace
}  // namespace lockstep
