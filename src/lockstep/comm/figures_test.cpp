#include "lockstep/comm/figures.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/worker.h"
#include "lockstep/comm/run_figures.h"
#include "lockstep/guard/report.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

const LabelFigures& line_of(const std::vector<LabelFigures>& lines, const std::string& label) {
  static const LabelFigures none;
  for (const auto& line : lines) {
    if (line.label == label) return line;
  }
  ADD_FAILURE() << "no line \"" << label << "\"";
  return none;
}

const CommunicationLine& line_of(const std::vector<CommunicationLine>& lines, const std::string& name) {
  static const CommunicationLine none;
  for (const auto& line : lines) {
    if (line.name == name) return line;
  }
  ADD_FAILURE() << "no line \"" << name << "\"";
  return none;
}

TEST(Figures, AddUpTheCallsOfALabelAndOperation) {
  Figures figures;
  const size_t gather = figures.line_of(Op::kAllGather, "a gather");
  const size_t same_words = figures.line_of(Op::kBroadcast, "a gather");
  EXPECT_NE(gather, same_words);
  EXPECT_EQ(figures.line_of(Op::kAllGather, "a gather"), gather);
  CallCost cost{.bytes = 8000};
  cost.launched(milliseconds(2));
  cost.ended(milliseconds(3),
             {.busy = milliseconds(10), .late = milliseconds(4), .busy_told = true, .late_told = true});
  figures.add(gather, cost);
  figures.add(gather, cost);
  const auto lines = figures.lines();
  ASSERT_EQ(lines.size(), 1U) << "a line without an ended call is not told";
  EXPECT_EQ(lines[0].op, Op::kAllGather);
  EXPECT_EQ(lines[0].calls, 2);
  EXPECT_EQ(lines[0].bytes, 16000);
  EXPECT_EQ(lines[0].exposed_ns, 10'000'000);  // 2 x (2 + 3 ms)
  EXPECT_EQ(lines[0].busy_ns, 24'000'000);     // 2 x (2 + 10 ms)
  EXPECT_EQ(lines[0].late_ns, 8'000'000);
  EXPECT_TRUE(lines[0].busy_told && lines[0].late_told);
}

TEST(Figures, ACallIsBusyAtLeastAsLongAsTheRankStandsInIt) {
  Figures figures;
  CallCost cost{.bytes = 1};
  cost.ended(milliseconds(7), {.busy = milliseconds(1)});
  figures.add(figures.line_of(Op::kAllReduce, "norm"), cost);
  EXPECT_EQ(figures.lines()[0].busy_ns, 7'000'000);
  EXPECT_FALSE(figures.lines()[0].busy_told) << "the transport did not say";
}

TEST(Figures, LabelsThatNeverRepeatShareALineInTheEnd) {
  Figures figures;
  for (size_t i = 0; i < Figures::kMostLines + 100; ++i) {
    figures.add(figures.line_of(Op::kBarrier, fmt::format("place {}", i)), {});
  }
  const auto lines = figures.lines();
  EXPECT_EQ(lines.size(), Figures::kMostLines + 1);
  EXPECT_EQ(line_of(lines, "other labels").calls, 100);
}

TEST(Figures, CanBeAskedWhileCallsAreMade) {
  Figures figures;
  Worker asker("asker", [&](const std::stop_token& stop) {
    int64_t before = 0;
    while (!stop.stop_requested()) {
      int64_t calls = 0;
      for (const auto& line : figures.lines()) calls += line.calls;
      EXPECT_GE(calls, before);
      before = calls;
    }
  });
  for (int i = 0; i < 20'000; ++i) figures.add(figures.line_of(Op::kAllGather, fmt::format("{} gather", i % 700)), {});
  int64_t calls = 0;
  for (const auto& line : figures.lines()) calls += line.calls;
  EXPECT_EQ(calls, 20'000);
}

TEST(KindOf, LeavesOutTheBlockAndTheDigits) {
  EXPECT_EQ(kind_of("text.layers.7 gather", true), "gather");
  EXPECT_EQ(kind_of("lm_head grad gather", true), "grad gather");
  EXPECT_EQ(kind_of("norm", true), "norm");
  EXPECT_EQ(kind_of("compare model", false), "compare model");
  EXPECT_EQ(kind_of("step 12 figures", false), "step figures");
  EXPECT_EQ(kind_of("eval at 300", false), "eval at");
  EXPECT_EQ(kind_of("42", false), "42");
  EXPECT_EQ(kind_of("", true), "");
}

class Counted : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(Figures, Counted, testing::Values(Transport::kShm, Transport::kGloo),
                         [](const auto& transport) { return transport.param == Transport::kShm ? "shm" : "gloo"; });

TEST_P(Counted, BytesAreThoseOfTheWholeArray) {
  for (const int world : {2, 4}) {
    run_ranks(world,
              [&](Rank& rank) {
                Communicator& comm = rank.data();
                const Tensor shard = zeros({1000}, Dtype::kF32), whole = zeros({1000 * world}, Dtype::kF32);
                for (int i = 0; i < 3; ++i) comm.all_gather(whole, shard, "layers.0 gather").wait();
                comm.reduce_scatter(shard, zeros({1000 * world}, Dtype::kBF16), false, "layers.0 grad").wait();
                comm.all_reduce_sum(zeros({3}, Dtype::kF64), "norm");
                comm.all_reduce_max(zeros({5}, Dtype::kI64), "norm");
                comm.broadcast(zeros({7}, Dtype::kF32), 0, "seed");
                comm.barrier("start");
                comm.all_gather_bytes(std::string(11, 'x'), "names");
                const auto lines = comm.figures().lines();
                EXPECT_EQ(line_of(lines, "layers.0 gather").calls, 3);
                EXPECT_EQ(line_of(lines, "layers.0 gather").bytes, world == 2 ? 24'000 : 48'000);
                EXPECT_EQ(line_of(lines, "layers.0 grad").bytes, world == 2 ? 4'000 : 8'000);
                EXPECT_EQ(line_of(lines, "norm").bytes, 24 + 40);
                EXPECT_EQ(line_of(lines, "norm").calls, 2);
                EXPECT_EQ(line_of(lines, "seed").bytes, 28);
                EXPECT_EQ(line_of(lines, "start").bytes, 0);
                EXPECT_EQ(line_of(lines, "names").calls, 2) << "the lengths, then the texts";
                EXPECT_EQ(line_of(lines, "names").bytes, world == 2 ? 2 * 8 + 22 : 4 * 8 + 44);
                for (const auto& line : lines) {
                  EXPECT_TRUE(line.busy_told) << line.label;
                  EXPECT_EQ(line.late_told, GetParam() == Transport::kShm) << line.label;
                  EXPECT_GE(line.busy_ns, line.exposed_ns) << line.label;
                  EXPECT_GT(line.exposed_ns, 0) << line.label;
                }
              },
              {.transport = GetParam()});
  }
}

TEST_P(Counted, ComputeBetweenLaunchAndWaitIsNotExposed) {
  run_ranks(2,
            [&](Rank& rank) {
              const Tensor whole = zeros({2000}, Dtype::kF32), shard = zeros({1000}, Dtype::kF32);
              rank.data().barrier("start");
              const auto begun = Clock::now();
              Pending gathered = rank.data().all_gather(whole, shard, "layers.0 gather");
              const auto launched = Clock::now();
              std::this_thread::sleep_for(milliseconds(100));  // compute
              const auto computed = Clock::now() - launched;
              gathered.wait();
              const int64_t in_calls = std::chrono::nanoseconds(Clock::now() - begun - computed).count();
              const auto lines = rank.data().figures().lines();
              const auto& line = line_of(lines, "layers.0 gather");
              EXPECT_LE(line.exposed_ns, in_calls);
              if (GetParam() == Transport::kShm) {
                EXPECT_LE(line.busy_ns, in_calls) << "shared memory stands still while nobody is in a call";
              }
            },
            {.transport = GetParam()});
}

TEST_P(Counted, WaitingForALateRankIsExposedAndToldWhereItCanBe) {
  std::atomic<const Board*> first{nullptr};
  run_ranks(2,
            [&](Rank& rank) {
              const Tensor whole = zeros({2000}, Dtype::kF32), shard = zeros({1000}, Dtype::kF32);
              rank.data().barrier("start");
              if (rank.id() == 0) {
                first = &rank.data().recorder().board();
              } else {  // late by so much from where the other one stands in the call
                while (first == nullptr || read_board(*first, 1).waiting() == nullptr) std::this_thread::yield();
                std::this_thread::sleep_for(milliseconds(200));
              }
              rank.data().all_gather(whole, shard, "layers.0 gather").wait();
              const auto lines = rank.data().figures().lines();
              const auto& line = line_of(lines, "layers.0 gather");
              if (rank.id() == 0) {
                EXPECT_GE(line.exposed_ns, 100'000'000);
              }
              if (rank.id() == 0 && line.late_told) {
                EXPECT_GE(line.late_ns, 100'000'000);
              }
              EXPECT_LE(line.late_ns, line.busy_ns);
              const CommunicationFigures merged = collect_figures(rank.data(), rank.control());
              EXPECT_EQ(merged.ranks, 2);
              const auto& gather = line_of(merged.kinds, "gather");
              EXPECT_EQ(gather.operation, "all_gather");
              EXPECT_EQ(gather.calls, 1);
              EXPECT_EQ(gather.bytes, 8'000);
              EXPECT_EQ(gather.longest_rank, 0);
              EXPECT_EQ(merged.waited_for, GetParam() == Transport::kShm ? 1 : -1);
              EXPECT_EQ(gather.late_seconds >= 0, GetParam() == Transport::kShm);
            },
            {.transport = GetParam()});
}

TEST(RunFigures, AreMeansOverRanksWithTheRankThatStandsOut) {
  const auto rank = [](int64_t exposed_ms, int64_t late_ms, double run) {
    const auto line = [&](const char* label) {
      return LabelFigures{.op = Op::kAllGather,
                          .label = label,
                          .calls = 10,
                          .bytes = 4'000'000'000,
                          .busy_ns = 2'000'000'000,
                          .exposed_ns = exposed_ms * 1'000'000,
                          .late_ns = late_ms * 1'000'000};
    };
    return RankFigures{.seconds = run, .of_parameters = {line("layers.0 gather"), line("layers.1 gather")}};
  };
  const auto merged =
      merge_figures({rank(1000, 900, 10), rank(1000, 900, 10), rank(1000, 100, 10), rank(2000, 900, 10)});
  ASSERT_EQ(merged.kinds.size(), 1U);
  ASSERT_EQ(merged.labels.size(), 2U);
  const CommunicationLine& kind = merged.kinds[0];
  EXPECT_EQ(kind.name, "gather");
  EXPECT_TRUE(kind.of_parameters);
  EXPECT_EQ(kind.calls, 20);
  EXPECT_EQ(kind.bytes, 8'000'000'000);
  EXPECT_DOUBLE_EQ(kind.busy_seconds, 4);
  EXPECT_DOUBLE_EQ(kind.exposed_seconds, 2.5);
  EXPECT_DOUBLE_EQ(kind.late_seconds, 1.4);
  EXPECT_EQ(kind.longest_rank, 3);
  EXPECT_DOUBLE_EQ(kind.longest_exposed_seconds, 4);
  EXPECT_DOUBLE_EQ(kind.algorithm_bandwidth(), 2e9);
  EXPECT_DOUBLE_EQ(kind.bus_bandwidth(4), 1.5e9);  // 3 of 4 parts come over the wire
  EXPECT_DOUBLE_EQ(merged.seconds, 10);
  EXPECT_EQ(merged.waited_for, 2);
  EXPECT_TRUE(merge_figures({rank(1, 1, 1)}).empty()) << "a rank alone has nobody to talk to";
}

TEST(RunFigures, OneThatDoesNotTellLeavesTheWholeLineUntold) {
  LabelFigures told{.op = Op::kAllReduce, .label = "norm", .calls = 1, .bytes = 8, .busy_ns = 5, .exposed_ns = 5};
  LabelFigures untold = told;
  untold.busy_told = untold.late_told = false;
  const auto merged = merge_figures({{.seconds = 1, .others = {told}}, {.seconds = 1, .others = {untold}}});
  EXPECT_EQ(merged.kinds.at(0).busy_seconds, -1);
  EXPECT_EQ(merged.kinds.at(0).late_seconds, -1);
  EXPECT_EQ(merged.kinds.at(0).algorithm_bandwidth(), 0);
  EXPECT_EQ(merged.waited_for, -1);
}

TEST(RunFigures, BusBandwidthIsThatOfNcclTests) {
  CommunicationLine line{.bytes = 1'000'000, .busy_seconds = 1};
  for (const auto& [operation, expected] : {std::pair{"all_reduce", 1'500'000.0},
                                            {"all_gather", 750'000.0},
                                            {"reduce_scatter", 750'000.0},
                                            {"broadcast", 1'000'000.0},
                                            {"barrier", 0.0}}) {
    line.operation = operation;
    EXPECT_DOUBLE_EQ(line.bus_bandwidth(4), expected) << operation;
  }
}

}  // namespace
}  // namespace lockstep
