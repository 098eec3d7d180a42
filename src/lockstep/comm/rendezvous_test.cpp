// A meeting point that torchrun's agent hosts, and keeps when it starts ranks again.
#include "lockstep/comm/rendezvous.h"

#include <future>
#include <map>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/base/env.h"
#include "lockstep/comm/meeting.h"
#include "lockstep/comm/own_address.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
constexpr auto kPatience = std::chrono::seconds(20);

class AgentStore : public testing::Test {
 protected:
  AgentStore() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    server_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  /// One rank a node, whose agent has counted so many failures of its own.
  World world(int rank, int restarts = 0, int size = 2) const {
    return World::from_env(
        Env(std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                               {"LOCAL_RANK", "0"},
                                               {"WORLD_SIZE", std::to_string(size)},
                                               {"LOCAL_WORLD_SIZE", "1"},
                                               {"GROUP_RANK", std::to_string(rank)},
                                               {"GROUP_WORLD_SIZE", std::to_string(size)},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", std::to_string(server_->getPort())},
                                               {"TORCHELASTIC_RUN_ID", "none"},
                                               {"TORCHELASTIC_RESTART_COUNT", std::to_string(restarts)},
                                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  }

  /// "met", or what it threw.
  static std::string meet(const World& world, Clock::duration patience = kPatience) {
    try {
      Recorder recorder;
      const auto rendezvous = Rendezvous::tcp(world, patience);
      Meeting(world, *rendezvous, patience, recorder).arrive();
      return "met";
    } catch (const CollectiveError& error) {
      return error.message();
    }
  }

  c10::intrusive_ptr<c10d::TCPStore> server_;
};

TEST_F(AgentStore, RanksMeetWhateverTheirAgentsHaveCounted) {
  for (const auto& restarts : {std::pair(0, 1), {3, 1}, {1, 1}}) {  // one round after the other, in one store
    auto other = std::async(std::launch::async, [&] { return meet(world(1, restarts.second)); });
    EXPECT_EQ(meet(world(0, restarts.first)), "met");
    EXPECT_EQ(other.get(), "met");
  }
}

TEST_F(AgentStore, WhatAnEarlierRoundHasLeftIsNotMet) {
  auto other = std::async(std::launch::async, [&] { return meet(world(1)); });
  EXPECT_EQ(meet(world(0)), "met");
  EXPECT_EQ(other.get(), "met");
  const std::string alone = meet(world(1), milliseconds(600));  // membership changed: no agent has counted anything
  EXPECT_NE(alone.find("rank 1 of 2 (torchrun), within 600ms: rank 0 did not come to 127.0.0.1:"), std::string::npos)
      << alone;
  auto first = std::async(std::launch::async, [&] { return meet(world(0), milliseconds(600)); });
  EXPECT_NE(first.get().find("missing: rank 1"), std::string::npos) << "rank 1 has asked, and is gone";
}

TEST_F(AgentStore, WhoWaitsInARoundThatIsOverIsToldSo) {
  const auto root = Rendezvous::tcp(world(0, 0, 3), kPatience);
  root->set(kOpened, MeetingOwner::own("").text());
  auto waiting = std::async(std::launch::async, [&] { return meet(world(1, 0, 3)); });  // for rank 2
  while (!root->look(meeting_key("arrived", 1))) std::this_thread::sleep_for(milliseconds(1));
  const auto next = Rendezvous::tcp(world(0, 1, 3), kPatience);
  const std::string said = waiting.get();
  EXPECT_NE(said.find("is over: a rank 0 that was started later has opened another there"), std::string::npos) << said;
}

TEST_F(AgentStore, AnAnswerIsOfWhoWasAsked) {
  const auto before = Rendezvous::tcp(world(1), kPatience);
  before->answer("agent/1", "old");
  const auto now = Rendezvous::tcp(world(1), kPatience);
  auto asked =
      std::async(std::launch::async, [&] { return Rendezvous::tcp(world(1), kPatience)->ask("agent/1", kPatience); });
  std::this_thread::sleep_for(milliseconds(100));
  now->answer("agent/1", "new");
  while (asked.wait_for(milliseconds(5)) != std::future_status::ready) EXPECT_FALSE(now->joined());
  EXPECT_EQ(asked.get(), "new");
}

// The port is that of a job which still waits for a rank: it is named, and goes on.
TEST(MeetingPoint, OfAnotherJobIsNamed) {
  const HeldPort port;
  const World world{
      .rank = 0, .size = 2, .local_size = 1, .num_nodes = 2, .master_port = port.number(), .job = "Slurm job 5.0"};
  const auto root = Rendezvous::tcp(world, kPatience);
  auto first = std::async(std::launch::async, [&] {
    Recorder recorder;
    Meeting(world, *root, kPatience, recorder).arrive();
  });
  const auto other = Rendezvous::tcp({.rank = 1, .size = 2, .master_port = port.number()}, kPatience);
  while (!other->look(kOpened)) std::this_thread::sleep_for(milliseconds(1));
  const auto begun = Clock::now();
  try {
    Rendezvous::tcp({.rank = 0, .size = 2, .master_port = port.number(), .job = "Slurm job 6.0"}, kPatience);
    FAIL() << "expected an error";
  } catch (const CollectiveError& error) {
    EXPECT_NE(error.message().find("cannot be opened: another job's meeting (Slurm job 5.0, opened by process "),
              std::string::npos)
        << error.message();
    EXPECT_NE(error.hint().find("MASTER_PORT="), std::string::npos) << error.hint();
  }
  EXPECT_LT(seconds_since(begun), 5);
  World second = world;
  second.rank = second.node = 1;
  Recorder recorder;
  EXPECT_NO_THROW(Meeting(second, *other, kPatience, recorder).arrive());
  EXPECT_NO_THROW(first.get());
}

}  // namespace
}  // namespace lockstep
