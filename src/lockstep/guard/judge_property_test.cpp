// Random programs on random numbers of ranks, with one random fault or none, read at a random moment.
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

using Random = std::mt19937_64;

size_t pick(Random& random, size_t from, size_t to) { return std::uniform_int_distribution<size_t>(from, to)(random); }

/// The place in the source is for people: it is no part of what must agree.
bool alike(const TestCall& a, const TestCall& b) { return a.signature == b.signature && a.label == b.label; }

/// A loop of 2 to 12 calls, some of them alike but for the label, some equal in all.
TestCalls random_program(Random& random, size_t length) {
  TestCalls loop;
  const std::array<Op, 5> ops{Op::kAllReduce, Op::kAllGather, Op::kReduceScatter, Op::kBroadcast, Op::kBarrier};
  for (size_t i = 0, size = pick(random, 2, 12); i < size; ++i) {
    if (i > 0 && pick(random, 0, 5) == 0) {
      loop.push_back(loop[pick(random, 0, i - 1)]);
      continue;
    }
    const Op op = ops.at(pick(random, 0, ops.size() - 1));
    const bool reduces = op == Op::kAllReduce || op == Op::kReduceScatter;
    loop.push_back(test_call(op, pick(random, 0, 1) == 0 ? "f32" : "bf16",
                             {static_cast<int64_t>(pick(random, 1, 4)), static_cast<int64_t>(pick(random, 1, 4))},
                             fmt::format("tensor {}", pick(random, 0, 7)), fmt::format("loop.cpp:{}", 10 + i),
                             reduces ? ReduceOp::kSum : ReduceOp::kNone, op == Op::kBroadcast ? 0 : -1));
  }
  TestCalls all;
  while (all.size() < length) all.push_back(loop[all.size() % loop.size()]);
  return all;
}

/// One change at `at` after which the call there is another one; its name.
std::string inject(Random& random, TestCalls& calls, size_t at) {
  const TestCall before = calls[at];
  const auto here = calls.begin() + static_cast<std::ptrdiff_t>(at);
  switch (pick(random, 0, 8)) {
    case 0:
      calls[at].signature.dtype = {'i', '6', '4'};
      return "dtype";
    case 1:
      calls[at].signature.dims[0] += 1;
      calls[at].signature.num_dims = 2;
      return "shape";
    case 2:
      calls[at].signature.root = 5;
      return "root";
    case 3:
      calls[at].signature.reduce = ReduceOp::kMin;
      return "reduce op";
    case 4:
      calls[at].label = "another tensor";
      return "label";
    case 5:
      calls[at] = test_call(Op::kAllToAll, "f32", {3}, "other branch", "branch.cpp:5");
      return "op";
    case 6: {
      size_t many = 1;
      while (at + many < calls.size() && alike(calls[at + many], before)) ++many;
      calls.erase(here, here + static_cast<std::ptrdiff_t>(many));
      return "skip";
    }
    case 7:
      calls.insert(here, test_call(Op::kAllReduce, "f32", {1}, "debug", "debug.cpp:1", ReduceOp::kMax));
      return "extra";
    default: {
      size_t other = at + 1;
      while (other < calls.size() && alike(calls[other], before)) ++other;
      if (other < calls.size()) std::swap(calls[at], calls[other]);
      return "order";
    }
  }
}

struct Job {
  std::vector<RankReport> reports;
  std::string fault;
  int culprit = -1;
  uint64_t at = 0;
};

enum class Moment { kAllStuck, kGoingOn, kSomeAreLate };

/// A job as its boards show it some time after `culprit` left the path.
Job random_job(Random& random, int world, Moment moment) {
  const size_t warm = pick(random, 1, 400);
  const TestCalls usual = random_program(random, warm + 200);
  TestCalls odd = usual;
  Job job{.culprit = static_cast<int>(pick(random, 0, static_cast<size_t>(world) - 1)), .at = warm + 1};
  while (alike(odd[warm], usual[warm])) {  // in a loop of equal calls some changes change nothing
    odd = usual;
    job.fault = inject(random, odd, warm);
  }
  const int punctual = (job.culprit + 1) % world;
  for (int rank = 0; rank < world; ++rank) {
    TestCalls calls = rank == job.culprit ? odd : usual;
    const bool late =
        moment == Moment::kSomeAreLate && rank != job.culprit && rank != punctual && pick(random, 0, 1) == 0;
    size_t made = warm + 1;
    if (late) made = warm - pick(random, 0, std::min<size_t>(warm, 20));
    if (moment == Moment::kGoingOn) made += pick(random, 0, 50);
    calls.resize(made);
    RankReport report = running_rank(rank, world);
    GroupReport& group = add_calls(report, calls, "data", 64);
    if (!late && made > 0) wait_in_last(group, 0.1);
    job.reports.push_back(std::move(report));
  }
  return job;
}

struct Score {
  int jobs = 0, found = 0, culprit = 0, named = 0, seq = 0;
  std::string text(std::string_view title) const {
    return fmt::format("{}: {} jobs, found {:.1f} %, culprit {:.1f} %, call number {:.1f} %", title, jobs,
                       100.0 * found / jobs, 100.0 * culprit / jobs, 100.0 * seq / jobs);
  }
};

Score score_of(uint64_t seed, Moment moment, int least, int most, int jobs) {
  Random random(seed);
  Score score;
  for (int i = 0; i < jobs; ++i) {
    const int world = static_cast<int>(pick(random, static_cast<size_t>(least), static_cast<size_t>(most)));
    const Job job = random_job(random, world, moment);
    const Judgement judgement = judge(census_of(job.reports));
    const Diagnosis& found = judgement.diagnosis;
    score.jobs += 1;
    const bool mismatch = judgement.verdict == Verdict::kEnd && found.fault == Fault::kMismatch;
    score.found += mismatch ? 1 : 0;
    score.culprit += mismatch && found.culprits == RankSet({job.culprit}) ? 1 : 0;
    score.seq += mismatch && found.seq == job.at ? 1 : 0;
    EXPECT_TRUE(!mismatch || recorded(job.reports, found.op, found.label))
        << job.fault << ", seed " << seed << ", job " << i << "\n"
        << found.text();
  }
  return score;
}

TEST(JudgeProperty, FindsTheCulpritOfARandomFault) {
  const uint64_t seed = test_seed(20261121);
  const Score stuck = score_of(seed, Moment::kAllStuck, 3, 8, test_rounds(1000));
  const Score going_on = score_of(seed + 1, Moment::kGoingOn, 3, 8, test_rounds(1000));
  const Score late = score_of(seed + 2, Moment::kSomeAreLate, 3, 8, test_rounds(1000));
  const Score two = score_of(seed + 3, Moment::kAllStuck, 2, 2, test_rounds(1000));
  fmt::print("seed {}\n{}\n{}\n{}\n{}\n", seed, stuck.text("3 to 8 ranks, all stuck"),
             going_on.text("3 to 8 ranks, nobody blocked"), late.text("3 to 8 ranks, some are late"),
             two.text("2 ranks, no majority"));
  EXPECT_EQ(stuck.culprit, stuck.jobs);
  EXPECT_EQ(stuck.seq, stuck.jobs);
  EXPECT_EQ(going_on.culprit, going_on.jobs);
  EXPECT_EQ(going_on.seq, going_on.jobs);
  EXPECT_EQ(late.found, late.jobs);
  EXPECT_GE(late.culprit * 100, late.jobs * 95);
  EXPECT_GE(two.culprit * 100, two.jobs * 95);
  EXPECT_EQ(two.found, two.jobs);
}

TEST(JudgeProperty, AccusesNobodyWithoutAFault) {
  const uint64_t seed = test_seed(7);
  Random random(seed);
  const int rounds = test_rounds(1000);
  for (int job = 0; job < rounds; ++job) {
    const TestCalls calls = random_program(random, 600);
    const auto world = static_cast<int>(pick(random, 2, 8));
    const size_t spread = pick(random, 0, 100);
    std::vector<RankReport> reports;
    for (int rank = 0; rank < world; ++rank) {
      TestCalls made = calls;
      made.resize(pick(random, 500 - spread, 500));
      reports.push_back(running_rank(rank, world));
      GroupReport& group = add_calls(reports.back(), made, "data", pick(random, 1, 64));
      if (pick(random, 0, 1) == 0) wait_in_last(group, 0.5);
    }
    const Census census = census_of(reports);
    EXPECT_EQ(judge_mismatch(census).verdict, Verdict::kFine) << "seed " << seed << ", job " << job;
    EXPECT_EQ(judge(census).verdict, Verdict::kFine) << "seed " << seed << ", job " << job;
  }
}

}  // namespace
}  // namespace lockstep
