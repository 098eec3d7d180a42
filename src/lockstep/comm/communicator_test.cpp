#include "lockstep/comm/communicator.h"

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/worker.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/comm/own_address.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/testing/part.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const auto& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCommunication);
    return error.what();
  }
  ADD_FAILURE() << "expected a CollectiveError";
  return {};
}

class Faults : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(Communicator, Faults, testing::Values(Transport::kShm, Transport::kGloo),
                         [](const auto& transport) { return transport.param == Transport::kShm ? "shm" : "gloo"; });

TEST_P(Faults, ALateRankEndsInAnErrorThatNamesTheCall) {
  const RanksOptions options{.transport = GetParam(), .patience = seconds(2)};
  std::atomic<bool> failed{false};
  run_ranks(
      2,
      [&](Rank& rank) {
        rank.data().barrier("start");
        if (rank.id() == 1) {
          while (!failed) std::this_thread::sleep_for(milliseconds(5));
          return;
        }
        const Tensor sum = zeros({512}, Dtype::kF32), staged = zeros({1024}, Dtype::kBF16);
        const std::string text =
            failure_of([&] { rank.data().reduce_scatter(sum, staged, false, "text.layers.7 grad").wait(); });
        expect_words(text, {"rank 0 of 2", "reduce_scatter sum bf16[1024] \"text.layers.7 grad\" (#2)", "not finished",
                            "calls before it", "#1 barrier \"start\""});
        if (GetParam() == Transport::kShm) expect_words(text, {"rank 1 has not come"});
        expect_words(failure_of([&] { rank.data().barrier("after"); }), {"not started", "earlier call", "(#3)"});
        failed = true;
      },
      options);
}

TEST_P(Faults, ARankThatLeavesIsNoticedAtOnce) {
  const RanksOptions options{.transport = GetParam(), .patience = seconds(60)};
  const auto start = Clock::now();
  run_ranks(
      3,
      [&](Rank& rank) {
        rank.data().barrier("start");
        if (rank.id() == 1) return;
        const Tensor whole = zeros({12}, Dtype::kF32);
        const std::string text =
            failure_of([&] { rank.data().all_gather(whole, zeros({4}, Dtype::kF32), "late gather").wait(); });
        expect_words(text, {"all_gather f32[4] \"late gather\""});
        if (GetParam() == Transport::kShm) expect_words(text, {"has left"});
      },
      options);
  EXPECT_LT(seconds_since(start), 30) << "long before the deadline";
}

TEST_P(Faults, AbortFromAnotherThreadEndsAWait) {
  run_ranks(2,
            [&](Rank& rank) {
              rank.data().barrier("start");
              if (rank.id() == 1) {
                failure_of([&] { rank.data().barrier("second"); });
                return;
              }
              Worker killer("killer", [&](std::stop_token) {
                std::this_thread::sleep_for(milliseconds(100));  // the other rank waits
                rank.data().abort();
              });
              killer.join();
              failure_of([&] { rank.data().barrier("second"); });
            },
            {.transport = GetParam(), .patience = seconds(2)});
}

World world_of_part(int size) {
  World world{.rank = std::stoi(*part_variable("RANK")), .size = size, .local_size = size};
  world.local_rank = world.rank;
  world.master_port = std::stoi(part_variable("PORT").value_or("0"));
  world.source = "test";
  return world;
}

/// Not a test: rank 1 kills itself in front of its second call; rank 0 writes its error down.
TEST(Part, RankOfTwoThatDies) {
  const auto file = part_variable("FILE");
  if (!file) return;
  const World world = world_of_part(2);
  const Transport transport = part_variable("TRANSPORT") == "shm" ? Transport::kShm : Transport::kGloo;
  try {
    const CommSetup setup = connect(world, {.transport = transport, .patience = seconds(30)});
    setup.data->barrier("start");
    if (world.rank == 1) ::kill(::getpid(), SIGKILL);
    setup.data->barrier("second");
  } catch (const std::exception& error) {
    std::ofstream(*file) << error.what();
  }
  ::_exit(0);
}

/// Not a test: meets the others at one of PORTS after the other.
TEST(Part, RankOfThreeThatMeetsAgain) {
  const auto ports = part_variable("PORTS");
  if (!ports) return;
  bool fine = true;
  std::istringstream rest(*ports);
  for (int port = 0; fine && rest >> port;) {
    World world = world_of_part(3);
    world.master_port = port;
    try {
      connect(world, {.patience = seconds(30), .rendezvous_patience = seconds(30)}).data->barrier("met");
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {} at port {}: {}\n", world.rank, port, error.what());
      fine = false;
    }
  }
  ::_exit(fine ? 0 : 1);
}

TEST_P(Faults, AKilledProcessIsNoticedAtOnce) {
  const auto start = Clock::now();
  const bool shm = GetParam() == Transport::kShm;
  const HeldPort held;
  const std::string file = testing::TempDir() + fmt::format("lockstep-killed-{}", ::getpid());
  const std::string port = std::to_string(held.number());
  std::vector<pid_t> children;
  for (const char* rank : {"0", "1"}) {
    children.push_back(
        start_part("Part.RankOfTwoThatDies",
                   {{"FILE", file}, {"RANK", rank}, {"PORT", port}, {"TRANSPORT", shm ? "shm" : "gloo"}}));
  }
  for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::filesystem::remove(file);
  expect_words(text, {"rank 0 of 2", "barrier \"second\""});
  if (shm) expect_words(text, {"rank 1 (process", "has died"});
  EXPECT_LT(seconds_since(start), 20) << "long before the deadline";
}

TEST(Connect, ProcessesMeetManyTimesWithoutLosingTheMeetingPoint) {
  const std::array<HeldPort, 10> held;  // before their meetings too, when nobody listens there
  std::string ports;
  for (const HeldPort& port : held) ports += fmt::format("{} ", port.number());
  std::vector<pid_t> children;
  for (const char* rank : {"0", "1", "2"}) {
    children.push_back(start_part("Part.RankOfThreeThatMeetsAgain", {{"PORTS", ports}, {"RANK", rank}}));
  }
  for (const pid_t pid : children) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(Connect, NamesTheRanksThatDidNotCome) {
  const HeldPort held;
  const int port = held.number();
  const World world{.rank = 0, .size = 3, .local_size = 3, .master_port = port, .source = "test"};
  const std::string text = failure_of([&] { connect(world, {.rendezvous_patience = seconds(2)}); });
  expect_words(text, {"1 of 3 ranks came to 127.0.0.1:" + std::to_string(port), "missing: ranks 1, 2"});
}

TEST(Connect, RefusesUnknownTransports) {
  EXPECT_EQ(transport_from_flag("auto"), Transport::kAuto);
  EXPECT_THROW(transport_from_flag("mpi"), UserError);
}

TEST(Communicator, CountsBytesAndCalls) {
  run_ranks(2, [](Rank& rank) {
    const Tensor whole = zeros({8}, Dtype::kF32);
    rank.data().all_gather(whole, zeros({4}, Dtype::kF32), "gather").wait();
    rank.data().reduce_scatter(zeros({4}, Dtype::kF32), whole, false, "reduce").wait();
    const CommCounters counters = rank.data().counters();
    EXPECT_EQ(counters.calls, 2);
    EXPECT_EQ(counters.gather_bytes, 32);
    EXPECT_EQ(counters.reduce_bytes, 32);
    EXPECT_EQ(rank.data().ring().last(2).back().state, CallState::kDone);
  });
}

TEST(Communicator, RefusesShapesThatDoNotFit) {
  Communicator comm(World{}, make_solo_backend("cpu"));
  EXPECT_THROW(comm.all_gather(zeros({5}, Dtype::kF32), zeros({4}, Dtype::kF32), "odd"), InternalError);
  EXPECT_THROW(comm.reduce_scatter(zeros({4}, Dtype::kBF16), zeros({4}, Dtype::kF32), false, "odd"), InternalError);
}

TEST(StepContract, AgreesOnTheUnion) {
  const std::array<Modalities, 3> of_rank{
      Modalities{}, {Modality::kText, Modality::kVideo}, {Modality::kText, Modality::kAudio}};
  run_ranks(3, [&](Rank& rank) {
    const StepContract mine{.modalities = of_rank[static_cast<size_t>(rank.id())].bits(),
                            .target_tokens = 10 + rank.id(),
                            .input_tokens = 100,
                            .rows = rank.id(),
                            .stop = rank.id() == 0,
                            .fingerprint = 7};
    const Agreement agreed = agree(rank.control(), mine);
    EXPECT_EQ(agreed.modalities, (Modalities{Modality::kText, Modality::kVideo, Modality::kAudio}));
    EXPECT_TRUE(agreed.stop);
    EXPECT_EQ(agreed.target_tokens, 33);
    EXPECT_EQ(agreed.input_tokens, 300);
    EXPECT_EQ(agreed.rows, 3);
  });
}

TEST(StepContract, NamesTheRanksThatDiffer) {
  run_ranks(3, [](Rank& rank) {
    const uint64_t odd = rank.id() == 1 ? 0xAB : 0xCD;
    expect_words(failure_of([&] { agree(rank.control(), {.fingerprint = odd}); }),
                 {"sequence of collective calls", "00000000000000ab on rank 1", "00000000000000cd on ranks 0 2"});
    expect_words(failure_of([&] { agree(rank.control(), {.plan_hash = odd}); }), {"the plan differs"});
  });
}

}  // namespace
}  // namespace lockstep
