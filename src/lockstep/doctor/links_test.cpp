#include "lockstep/doctor/links.h"

#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Link link(int a, int b, double gigabytes) {
  return {.a = a, .b = b, .bytes_per_second = gigabytes * 1e9, .latency_seconds = 10e-6};
}

TEST(LinkRounds, EveryTwoRanksMeetOnceAndNobodyIsInTwoPairs) {
  for (int size = 2; size <= 17; ++size) {
    SCOPED_TRACE(size);
    const auto rounds = link_rounds(size, 1000);
    EXPECT_EQ(static_cast<int>(rounds.size()), size % 2 == 0 ? size - 1 : size);
    std::map<std::pair<int, int>, int> met;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second);
        EXPECT_TRUE(busy.insert(b).second);
        ++met[{a, b}];
      }
    }
    EXPECT_EQ(static_cast<int>(met.size()), size * (size - 1) / 2);
    for (const auto& [pair, times] : met) EXPECT_EQ(times, 1);
  }
}

TEST(LinkRounds, AreAsManyAsAllowed) {
  EXPECT_EQ(link_rounds(1000, 128).size(), 128U);
  EXPECT_TRUE(link_rounds(1, 128).empty());
}

TEST(JudgeLinks, OneRankHasNone) {
  const auto results = judge_links(1, "solo", {});
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(contains(results[0].text, "--nproc 2"));
}

TEST(JudgeLinks, TellsLeastMedianAndMostInATable) {
  const auto results = judge_links(3, "gloo", {link(0, 1, 1), link(0, 2, 2), link(1, 2, 4)});
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].level, Level::kOk);
  EXPECT_TRUE(contains(results[0].text, "3 pairs of 3 ranks over gloo: 1.000 / 2.000 / 4.000 GB/s")) << results[0].text;
  ASSERT_EQ(results[0].table.size(), 4U);
  EXPECT_EQ(results[0].table[1], "      0-1     1.000 GB/s       10.0 us");
}

TEST(SlowLinks, HaveLessThanAThirdOfTheMedianOfThoseThatWork) {
  Link broken = link(2, 3, 0);
  broken.error = "connection refused";
  const auto slow = slow_links({link(0, 1, 3), link(0, 2, 0.6), link(0, 3, 1.1), link(1, 2, 3.1), broken});
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].b, 2);
  EXPECT_TRUE(slow_links({broken}).empty());
  EXPECT_TRUE(slow_links({}).empty());
}

TEST(JudgeLinks, ASlowPairIsNamed) {
  const auto results = judge_links(3, "gloo", {link(0, 1, 3), link(0, 2, 0.9), link(1, 2, 3.1)});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[1].level, Level::kWarning);
  EXPECT_EQ(results[1].text, "less than a third of the median 3.000 GB/s: 0-2 (0.900 GB/s)");
}

TEST(JudgeLinks, ARankInAllSlowPairsIsNamed) {
  const auto results = judge_links(
      4, "gloo", {link(0, 1, 9), link(0, 2, 9), link(0, 3, 1), link(1, 2, 9), link(1, 3, 1), link(2, 3, 2)});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_TRUE(contains(results[1].text, "rank 3 is in all of them")) << results[1].text;
}

TEST(JudgeLinks, APairThatCannotSpeakIsAFailure) {
  Link broken = link(1, 2, 0);
  broken.error = "connection refused";
  const auto results = judge_links(3, "gloo", {link(0, 1, 3), link(0, 2, 3), broken});
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[1].code, ExitCode::kCommunication);
  EXPECT_TRUE(contains(results[1].text, "1 of 3 pairs")) << results[1].text;
  EXPECT_TRUE(contains(results[1].text, "ranks 1-2: connection refused")) << results[1].text;
  EXPECT_EQ(judge_links(2, "gloo", {broken}).size(), 1U);
}

TEST(JudgeLinks, LargeJobsShowTheSlowestAndSayHowManyMore) {
  std::vector<Link> links;
  for (int b = 1; b < 40; ++b) links.push_back(link(0, b, 1 + b));
  const auto results = judge_links(40, "nccl", links);
  EXPECT_TRUE(contains(results[0].text, "39 of 780 pairs")) << results[0].text;
  EXPECT_EQ(results[0].table.size(), 30U);
  EXPECT_TRUE(contains(results[0].table.back(), "11 faster ones")) << results[0].table.back();
}

class MeasureLinks : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(Transports, MeasureLinks, testing::Values(Transport::kShm, Transport::kGloo),
                         [](const auto& transport) { return transport.param == Transport::kShm ? "shm" : "gloo"; });

TEST_P(MeasureLinks, GivesEveryRankEveryLink) {
  for (const int size : {2, 3, 4}) {
    SCOPED_TRACE(size);
    const auto meeting_point = Rendezvous::in_process();
    run_ranks(size,
              [&](Rank& rank) {
                const auto links = measure_links(rank.world(), *meeting_point, rank.control(),
                                                 {.pair = {.transport = rank.data().backend_name()}});
                ASSERT_EQ(static_cast<int>(links.size()), size * (size - 1) / 2);
                for (const auto& one : links) {
                  EXPECT_EQ(one.error, "");
                  EXPECT_GT(one.bytes_per_second, 0);
                  EXPECT_GT(one.latency_seconds, 0);
                }
                EXPECT_EQ(links.back().a, size - 2);
                EXPECT_EQ(links.back().b, size - 1);
              },
              {.transport = GetParam()});
  }
}

TEST(BrokenLinks, APairThatDoesNotMeetIsTold) {
  // Two meeting points: the ranks never see each other there, while their job goes on.
  const std::vector<std::shared_ptr<Rendezvous>> apart = {Rendezvous::in_process(), Rendezvous::in_process()};
  run_ranks(2, [&](Rank& rank) {
    const auto links =
        measure_links(rank.world(), *apart[static_cast<size_t>(rank.id())], rank.control(),
                      {.pair = {.transport = rank.data().backend_name(), .patience = std::chrono::milliseconds(200)}});
    ASSERT_EQ(links.size(), 1U);
    EXPECT_TRUE(contains(links[0].error, "did not come within 200ms")) << links[0].error;
    rank.control().barrier("the job is not touched");
  });
}

}  // namespace
}  // namespace lockstep
