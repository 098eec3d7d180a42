// A job of ten thousand ranks on a desk: what its nodes would tell each other, and who is named in the end.
#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/guard/test_reports.h"
#include "lockstep/guard/tree_link.h"

namespace lockstep {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kNodes = 160;  // the same paths in a tenth of the time
#else
constexpr int kNodes = 1250;
#endif
constexpr int kLocal = 8, kRanks = kNodes * kLocal;
constexpr int kDivergent = kRanks * 43 / 100 + 21, kDead = kRanks * 7 / 100 + 77, kBusy = kRanks - 1;
constexpr int kLostNode = kNodes * 48 / 100;
constexpr size_t kTail = 64;

/// What rank `rank` shows; reports that are alike are made once.
using Boards = std::function<const RankReport&(int rank)>;

struct Traffic {
  size_t messages = 0, most_messages = 0, bytes = 0, most_bytes = 0;
};

/// Every node reads its boards, adds what its children say, and tells its parent: bytes, as they go over the wire.
Judgement roll_call(const Boards& boards, Traffic& traffic, const RankSet& silent_nodes = {}) {
  std::vector<std::vector<std::string>> inbox(kNodes);
  for (int node = kNodes - 1; node >= 0; --node) {
    Census census;
    for (int local = 0; local < kLocal; ++local) {
      RankReport report = boards(node * kLocal + local);
      report.rank = node * kLocal + local;
      report.node = node;
      report.local_rank = local;
      report.unreachable = silent_nodes.contains(node);  // its parent adds this to what it said last
      census.add(std::move(report));
    }
    auto& mail = inbox[static_cast<size_t>(node)];
    for (const auto& bytes : mail) census.add(census_from_json(Json::from_cbor(bytes)));
    traffic.most_messages = std::max(traffic.most_messages, mail.size() + 1);
    mail.clear();
    if (node == 0) return judge(census);
    std::string bytes;
    Json::to_cbor(to_json(census), bytes);
    traffic.messages += 1;
    traffic.bytes += bytes.size();
    traffic.most_bytes = std::max(traffic.most_bytes, bytes.size());
    inbox[static_cast<size_t>(tree_parent(node))].push_back(std::move(bytes));
  }
  return {};
}

Judgement measured(std::string_view title, const Boards& boards, const RankSet& silent_nodes = {}) {
  Traffic traffic;
  const double before = process_cpu_seconds();
  Judgement judgement = roll_call(boards, traffic, silent_nodes);
  fmt::print(
      "{}: {} ranks judged in {:.2f} s of CPU; {} messages, at most {} at a node; {:.1f} kB a node, at most {:.1f}\n",
      title, kRanks, process_cpu_seconds() - before, traffic.messages, traffic.most_messages,
      static_cast<double>(traffic.bytes) / 1e3 / kNodes, static_cast<double>(traffic.most_bytes) / 1e3);
  EXPECT_EQ(traffic.messages, size_t{kNodes - 1});
  EXPECT_LE(traffic.most_messages, size_t{kTreeArity + 1});
  return judgement;
}

/// `calls` in the group of all, and a few in a second one.
RankReport standing(const TestCalls& calls, double waiting) {
  RankReport report = running_rank(0, kRanks);
  GroupReport& group = add_calls(report, calls, "data", kTail);
  if (waiting > 0) wait_in_last(group, waiting);
  add_calls(report, training_calls(3), "control", kTail);
  return report;
}

TestCalls calls_up_to(size_t count) {
  TestCalls calls = training_calls(count / 6 + 1);
  calls.resize(count);
  return calls;
}

TEST(Scale, NamesOneOfTenThousand) {
  const RankReport healthy = standing(calls_up_to(500), 20);
  TestCalls other = calls_up_to(500);
  other.back().signature.reduce = ReduceOp::kMax;
  const RankReport divergent = standing(other, 20);
  RankReport busy = standing(calls_up_to(499), 0);
  busy.phase = Phase::kData;
  busy.detail = "rows.jsonl:17";
  RankReport dead = busy;
  dead.process.state = ProcessState::kGone;
  dead.end = {.known = true, .signal = 9};
  const auto one_is = [&](const RankReport& report, int culprit) {
    return [&healthy, &report, culprit](int rank) -> const RankReport& { return rank == culprit ? report : healthy; };
  };

  const Judgement mismatch = measured("mismatch", one_is(divergent, kDivergent));
  EXPECT_EQ(mismatch.verdict, Verdict::kEnd);
  EXPECT_EQ(mismatch.diagnosis.fault, Fault::kMismatch);
  EXPECT_EQ(mismatch.diagnosis.culprits, RankSet({kDivergent}));
  EXPECT_EQ(mismatch.diagnosis.sides[0].ranks.text(),
            fmt::format("0-{}, {}-{}", kDivergent - 1, kDivergent + 1, kRanks - 1));

  const Judgement death = measured("death", one_is(dead, kDead));
  EXPECT_EQ(death.verdict, Verdict::kEnd);
  EXPECT_EQ(death.diagnosis.fault, Fault::kDeath);
  EXPECT_EQ(death.diagnosis.culprits, RankSet({kDead}));

  const Judgement stall = measured("stall", one_is(busy, kBusy));
  EXPECT_EQ(stall.verdict, Verdict::kNotice);
  EXPECT_EQ(stall.diagnosis.fault, Fault::kStall);
  EXPECT_EQ(stall.diagnosis.culprits, RankSet({kBusy}));

  const Judgement lost = measured("lost node", one_is(healthy, 0), {kLostNode});
  EXPECT_EQ(lost.verdict, Verdict::kEnd);
  EXPECT_EQ(lost.diagnosis.fault, Fault::kLostNode);
  EXPECT_EQ(lost.diagnosis.culprits.text(), fmt::format("{}-{}", kLostNode * kLocal, kLostNode * kLocal + kLocal - 1));
}

// Ranks that run ahead of each other by up to a dozen calls, no two neighbours in the same place.
TEST(Scale, RanksAtManyPlacesAreNoTrouble) {
  std::vector<RankReport> places;
  for (size_t place = 0; place < 12; ++place) {
    places.push_back(standing(calls_up_to(480 + place), place % 2 == 0 ? 0.5 : 0));
  }
  TestCalls other = calls_up_to(520);
  other[485].label = "another";
  const RankReport divergent = standing(other, 0.5);
  const auto boards = [&](int rank) -> const RankReport& {
    return rank == kRanks / 2 ? divergent : places[static_cast<size_t>(rank) * 7919 % places.size()];
  };
  const Judgement judgement = measured("a dozen places", boards);
  EXPECT_EQ(judgement.verdict, Verdict::kEnd);
  EXPECT_EQ(judgement.diagnosis.culprits, RankSet({kRanks / 2}));
}

// An error that every rank words in its own way: thousands of standings, which still fit into a message.
TEST(Scale, ThousandsOfDifferentWordsFit) {
  const RankReport healthy = standing(calls_up_to(500), 1);
  RankReport failing = healthy;
  const auto boards = [&](int rank) -> const RankReport& {
    if (rank % 4 != 0) return healthy;
    failing.last_words = {
        .exit_code = 6, .at_ns = 1000 + rank, .message = fmt::format("rank {}: cannot open file", rank)};
    return failing;
  };
  const Judgement judgement = measured("all fail", boards);
  EXPECT_EQ(judgement.verdict, Verdict::kEnd);
  EXPECT_EQ(judgement.diagnosis.headline, "rank 0: cannot open file");
}

}  // namespace
}  // namespace lockstep
