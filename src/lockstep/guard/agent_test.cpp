// The agent with ranks as threads of this process, and with a second agent as another node's.
#include "lockstep/guard/agent.h"

#include <array>
#include <functional>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/guard/member.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const CallSignature kSum = CallSignature::of(Op::kAllReduce, "f32", std::array<int64_t, 1>{4});
const CallSignature kWideSum = CallSignature::of(Op::kAllReduce, "f32", std::array<int64_t, 1>{6});

const std::string kSecret = "a long random secret";

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool holds_soon(const std::function<bool()>& condition) {
  const Deadline deadline(seconds(15));
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

/// One rank's recorder with its group.
struct Rank {
  Recorder recorder;
  int group = recorder.add_group("data");

  void call(const CallSignature& signature, std::string_view label, bool waits = false) {
    const uint64_t seq = recorder.enter(group, signature, label, std::source_location::current());
    if (waits) {
      recorder.wait_begins(group, seq, Clock::now());
    } else {
      recorder.set_state(group, seq, CallState::kDone);
    }
  }
};

/// What an agent has said, from any thread.
class Notices {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      all_ += text + "\n";
    };
  }
  std::string all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::string all_;
};

/// An agent and its ranks, which share this process.
class Node {
 public:
  explicit Node(int ranks, JudgeOptions judge = {}, bool strict = false)
      : agent_({.program = "test",
                .local_ranks = ranks,
                .world_size = ranks,
                .judge = judge,
                .strict = strict,
                .say = notices_.sink()}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Identity identity{.rank = rank, .world_size = ranks, .local_rank = rank, .pid = ::getpid()};
      ranks_.push_back(std::make_unique<Rank>());
      Recorder& recorder = ranks_.back()->recorder;
      recorder.introduce(identity);
      recorder.set_watched(strict);
      recorder.step_done(0);
      agent_.adopt(identity, recorder.memory());
    }
  }
  Agent& agent() { return agent_; }
  Rank& rank(size_t index) { return *ranks_.at(index); }
  std::string notices() const { return notices_.all(); }
  Conclusion concluded() {
    EXPECT_TRUE(holds_soon([&] { return agent_.conclusion().has_value(); }));
    return agent_.conclusion().value_or(Conclusion{});
  }

 private:
  Notices notices_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Agent agent_;
};

TEST(Agent, EndsAMismatchAndTellsEveryRank) {
  Node node(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    node.rank(rank).call(kSum, "warm up");
    node.rank(rank).call(rank == 2 ? kWideSum : kSum, "loss", /*waits=*/true);
  }
  const Conclusion end = node.concluded();
  EXPECT_EQ(end.diagnosis.fault, Fault::kMismatch);
  EXPECT_EQ(end.diagnosis.culprits, RankSet({2}));
  EXPECT_EQ(end.exit_code, 6);
  EXPECT_TRUE(says(end.text, "test: the job was ended: rank 2 sent another shape")) << end.text;
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto ending = node.rank(rank).recorder.await_ending(seconds(5));
    ASSERT_TRUE(ending);
    EXPECT_EQ(ending->exit_code, 6);
    EXPECT_TRUE(says(std::string(ending->message.view()), "rank 2 sent another shape"));
  }
  EXPECT_EQ(node.agent().close()->text, end.text);
}

/// A person's terminal, or the program that read the job's words, may end before the job does.
TEST(Agent, EndsAJobWhoseWordsNobodyReads) {
  Agent agent(
      {.program = "test", .local_ranks = 2, .world_size = 2, .judge = {.soft_seconds = 0.1}, .say = [](const auto&) {
         throw std::runtime_error("broken pipe");
       }});
  std::array<Rank, 2> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const Identity identity{.rank = rank, .world_size = 2, .local_rank = rank, .pid = ::getpid()};
    Recorder& recorder = ranks.at(static_cast<size_t>(rank)).recorder;
    recorder.introduce(identity);
    recorder.set_watched(/*strict=*/false);
    agent.adopt(identity, recorder.memory());
  }
  ranks[0].call(kSum, "loss", /*waits=*/true);
  std::this_thread::sleep_for(milliseconds(1500));  // a notice or two of the stall
  ranks[1].call(kWideSum, "loss", /*waits=*/true);
  ASSERT_TRUE(holds_soon([&] { return agent.conclusion().has_value(); }));
  for (auto& rank : ranks) EXPECT_TRUE(rank.recorder.await_ending(seconds(5)));
}

TEST(Agent, LastWordsAreTheHeadline) {
  Node node(3);
  for (const size_t rank : {0, 2}) node.rank(rank).call(kSum, "loss", /*waits=*/true);
  const auto fails = [] { throw data_error("no such image"); };
  EXPECT_THROW(node.rank(1).recorder.during(Phase::kData, "rows.jsonl:17", fails), Error);
  const Conclusion end = node.concluded();
  EXPECT_EQ(end.diagnosis.fault, Fault::kError);
  EXPECT_EQ(end.text, "test: error: rank 1: no such image");
  EXPECT_EQ(end.exit_code, 3);
}

// Another launcher tells its ranks one after the other, and the agent does not hear of it.
TEST(Agent, AStopIsToldAsOne) {
  Node node(3);
  for (const size_t rank : {0, 2}) node.rank(rank).call(kSum, "loss", /*waits=*/true);
  std::thread([&] { node.rank(1).recorder.say_stopped("interrupted (SIGTERM) before the first step"); }).join();
  const Conclusion end = node.concluded();
  EXPECT_EQ(end.text, "test: rank 1: interrupted (SIGTERM) before the first step");
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_EQ(end.post_mortem, "");
}

TEST(Agent, AStallIsNoticedAndEndedWhenThePatienceIsOver) {
  JudgeOptions judge{.soft_seconds = 0.2};
  judge.hard_seconds.fill(5);  // a notice waits for a stack, and comes long before
  Node node(3, judge);
  for (const size_t rank : {0, 2}) node.rank(rank).call(kSum, "loss", /*waits=*/true);
  node.rank(1).recorder.enter_phase(Phase::kData, "rows.jsonl:17");
  EXPECT_TRUE(holds_soon(
      [&] { return says(node.notices(), "notice: rank 1 is busy elsewhere: waiting for data (rows.jsonl:17)"); }));
  EXPECT_EQ(node.agent().conclusion(), std::nullopt);
  const Conclusion end = node.concluded();
  EXPECT_EQ(end.diagnosis.fault, Fault::kStall);
  EXPECT_EQ(end.diagnosis.culprits, RankSet({1}));
}

TEST(Agent, AStallThatEndsIsForgiven) {
  JudgeOptions judge{.soft_seconds = 0.2};
  Node node(2, judge);
  node.rank(0).call(kSum, "loss", /*waits=*/true);
  EXPECT_TRUE(holds_soon([&] { return says(node.notices(), "notice: rank 1"); }));
  node.rank(1).call(kSum, "loss");
  node.rank(0).recorder.wait_ends(0, milliseconds(300));
  EXPECT_TRUE(holds_soon([&] { return says(node.notices(), "rank 1 came; the job goes on"); }));
  for (size_t rank = 0; rank < 2; ++rank) node.rank(rank).recorder.finish(0);
  EXPECT_EQ(node.agent().close(), std::nullopt);
}

TEST(Agent, TellsOfAStraggler) {
  Node node(3);
  std::vector<std::unique_ptr<Worker>> threads;
  for (size_t index = 0; index < 3; ++index) {
    threads.push_back(std::make_unique<Worker>("rank", [&, index](std::stop_token stop) {
      Recorder& recorder = node.rank(index).recorder;
      for (int64_t step = 1; step < 1000 && !stop.stop_requested(); ++step) {
        recorder.during(Phase::kData, "", [&] { std::this_thread::sleep_for(milliseconds(index == 2 ? 150 : 5)); });
        node.rank(index).call(kSum, "loss");
        recorder.step_done(step);
      }
    }));
  }
  EXPECT_TRUE(holds_soon([&] { return says(node.notices(), "test: notice: rank 2 is "); }));
  EXPECT_TRUE(says(node.notices(), "slower than the others in data")) << node.notices();
  threads.clear();
  node.agent().interrupted();
  EXPECT_EQ(node.agent().close(), std::nullopt);
}

TEST(Agent, APersonsWishIsNoFault) {
  Node node(2);
  node.agent().interrupted();
  node.rank(0).call(kSum, "loss", /*waits=*/true);
  node.rank(1).call(kWideSum, "loss", /*waits=*/true);
  node.rank(1).recorder.say_last_words({.message = "interrupted"});
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(node.agent().conclusion(), std::nullopt);
  EXPECT_EQ(node.notices(), "");
  EXPECT_EQ(node.agent().close(), std::nullopt);
}

// Those that save first may break as ever, and nobody else would say so: the launcher waits for them.
TEST(Agent, WhatBreaksAfterAWishToStopIsToldUnlessRanksHaveEndedAsAsked) {
  Node breaks(2);
  breaks.agent().asked_to_stop();
  breaks.rank(0).call(kSum, "loss", /*waits=*/true);
  breaks.rank(1).call(kWideSum, "loss", /*waits=*/true);
  EXPECT_EQ(breaks.concluded().exit_code, 6);
  Node obeys(2);
  obeys.agent().asked_to_stop();
  obeys.rank(0).call(kSum, "loss", /*waits=*/true);
  std::thread([&] { obeys.rank(1).recorder.say_stopped("interrupted before the first step"); }).join();
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(obeys.agent().conclusion(), std::nullopt);
  EXPECT_EQ(obeys.agent().close(), std::nullopt);
}

// Nobody was blocked, and hundreds of calls have followed.
TEST(Agent, ASilentMismatchDoesNotSurviveTheEnd) {
  Node node(3);
  std::vector<std::unique_ptr<Worker>> threads;
  for (size_t index = 0; index < 3; ++index) {
    threads.push_back(std::make_unique<Worker>("rank", [&, index](std::stop_token) {
      for (int call = 0; call < 600; ++call) {
        node.rank(index).call(kSum, index == 1 && call == 10 ? "b" : "a");
      }
      node.rank(index).recorder.finish(0);
    }));
  }
  for (auto& thread : threads) thread->join();
  const auto end = node.agent().close();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->diagnosis.fault, Fault::kMismatch);
  EXPECT_EQ(end->diagnosis.culprits, RankSet({1}));
  EXPECT_EQ(end->diagnosis.seq, 11U);
}

TEST(Agent, StrictlyNobodyStartsBeforeAllAgree) {
  Node node(2, {}, /*strict=*/true);
  Rank& first = node.rank(0);
  const uint64_t seq = first.recorder.enter(first.group, kSum, "loss", std::source_location::current());
  first.recorder.await_clearance(first.group, seq, milliseconds(100));
  EXPECT_EQ(first.recorder.board().groups[0].cleared.load(), 0U);
  node.rank(1).call(kSum, "loss");
  first.recorder.await_clearance(first.group, seq, seconds(10));
  EXPECT_EQ(first.recorder.board().groups[0].cleared.load(), seq);
}

// ---- Two nodes.

/// An agent of one of two nodes with one rank, which has joined as a process would.
class JoinedNode {
 public:
  explicit JoinedNode(int node, JudgeOptions judge = {}, const std::string& secret = kSecret)
      : agent({.program = "test",
               .node = node,
               .num_nodes = 2,
               .first_rank = node,
               .world_size = 2,
               .judge = judge,
               .grace_seconds = 1e6,
               .job_secret = secret,
               .say = notices.sink()}),
        member(rank.recorder, {.address = agent.address(),
                               .identity = {.rank = node, .world_size = 2, .node = node, .pid = ::getpid()},
                               .grace_seconds = 1e6}) {
    rank.recorder.step_done(0);
  }
  Notices notices;
  Rank rank;
  Agent agent;
  Member member;
};

struct TwoNodes {
  explicit TwoNodes(JudgeOptions judge = {}, const std::string& secret = kSecret)
      : first(0, judge, secret), second(1, judge) {
    for (auto* node : {&first, &second}) node->member.tell_salt("salt of this attempt");
    second.member.tell_parent("127.0.0.1", first.member.tree_port());
  }
  bool meet() const {
    return holds_soon([this] { return first.agent.hears_children(); });
  }
  JoinedNode first, second;
};

// Each judges its own ranks, is heard by nobody else, and people learn why.
TEST(TwoAgents, WithDifferentSecretsSayAWordAndGoOn) {
  TwoNodes nodes({}, "another secret of a job");
  ASSERT_TRUE(holds_soon([&] {
    return says(nodes.first.notices.all(),
                "who calls itself the agent of node 1, at 127.0.0.1, does not know this job's key") &&
           says(nodes.second.notices.all(), "LOCKSTEP_JOB_SECRET must be the same on all nodes");
  }));
  nodes.second.rank.recorder.say_last_words({.code = ExitCode::kNumerics, .message = "loss is nan"});
  ASSERT_TRUE(holds_soon([&] { return nodes.second.agent.conclusion().has_value(); }));
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(nodes.first.agent.conclusion(), std::nullopt);
}

TEST(TwoAgents, AreToldWhatItMeansToHaveNoSecret) {
  JoinedNode alone(0, {}, "");
  alone.member.tell_salt("salt");
  alone.member.tell_salt("salt");
  ASSERT_TRUE(holds_soon([&] { return says(alone.notices.all(), "LOCKSTEP_JOB_SECRET is not set"); }));
  std::this_thread::sleep_for(milliseconds(100));
  const std::string all = alone.notices.all();
  EXPECT_EQ(all.find("is not set"), all.rfind("is not set")) << all;  // once
  EXPECT_FALSE(says(TwoNodes().first.notices.all(), "is not set"));
}

TEST(TwoAgents, AgreeOnOneDiagnosis) {
  TwoNodes nodes;
  nodes.first.rank.call(kSum, "loss", /*waits=*/true);
  nodes.second.rank.call(kWideSum, "loss", /*waits=*/true);
  ASSERT_TRUE(holds_soon([&] { return nodes.first.agent.conclusion() && nodes.second.agent.conclusion(); }));
  EXPECT_TRUE(says(nodes.first.agent.conclusion()->text, "sent another shape"));
  EXPECT_EQ(nodes.first.agent.conclusion()->text, nodes.second.agent.conclusion()->text);
  EXPECT_EQ(nodes.first.agent.conclusion()->exit_code, nodes.second.agent.conclusion()->exit_code);
  EXPECT_TRUE(nodes.second.rank.recorder.await_ending(seconds(5)));
}

TEST(TwoAgents, AnErrorBelowReachesTheRoot) {
  TwoNodes nodes;
  nodes.first.rank.call(kSum, "loss", /*waits=*/true);
  nodes.second.rank.recorder.say_last_words({.code = ExitCode::kNumerics, .message = "loss is nan"});
  ASSERT_TRUE(holds_soon([&] { return nodes.first.agent.conclusion() && nodes.second.agent.conclusion(); }));
  EXPECT_EQ(nodes.first.agent.conclusion()->text, "test: error: rank 1: loss is nan");
  EXPECT_EQ(nodes.first.agent.conclusion()->exit_code, 7);
}

// At the end of a good run one node is a little earlier than the other.
TEST(TwoAgents, LeaveOneAfterTheOther) {
  for (const bool root_first : {true, false}) {
    TwoNodes nodes;
    JoinedNode& early = root_first ? nodes.first : nodes.second;
    JoinedNode& late = root_first ? nodes.second : nodes.first;
    for (auto* node : {&early, &late}) node->rank.call(kSum, "loss");
    ASSERT_TRUE(nodes.meet());
    early.rank.recorder.finish(0);
    std::optional<Conclusion> end;
    Worker leaving("leaving", [&](std::stop_token) { end = early.agent.close(); });
    late.rank.recorder.enter_phase(Phase::kSave, "model.safetensors");
    std::this_thread::sleep_for(milliseconds(700));
    EXPECT_EQ(late.agent.conclusion(), std::nullopt);
    late.rank.recorder.finish(0);
    EXPECT_EQ(late.agent.close(), std::nullopt);
    leaving.join();
    EXPECT_EQ(end, std::nullopt);
  }
}

// The other node's rank has ended and its agent is gone; who waits for it is told so.
TEST(TwoAgents, AnEarlyEndOfTheOtherNodeIsNamed) {
  for (const bool root_first : {true, false}) {
    TwoNodes nodes;
    JoinedNode& early = root_first ? nodes.first : nodes.second;
    JoinedNode& late = root_first ? nodes.second : nodes.first;
    for (auto* node : {&early, &late}) node->rank.call(kSum, "loss");
    ASSERT_TRUE(nodes.meet());
    early.rank.recorder.finish(0);
    Worker leaving("leaving", [&](std::stop_token) { (void)early.agent.close(); });
    std::this_thread::sleep_for(milliseconds(300));
    late.rank.call(kSum, "one more", /*waits=*/true);
    ASSERT_TRUE(holds_soon([&] { return late.agent.conclusion().has_value(); })) << root_first;
    EXPECT_TRUE(says(late.agent.conclusion()->text, "finished (exit code 0) while")) << late.agent.conclusion()->text;
    leaving.join();
  }
}

}  // namespace
}  // namespace lockstep
