#include "lockstep/watch/post_mortem_page.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/diagnosis.h"
#include "lockstep/watch/post_mortem_view.h"
#include "lockstep/watch/rank_timeline.h"
#include "lockstep/watch/timeline_plan.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr int64_t kRead = 5000 * kSecond, kWallClock = 1'700'000'000 * kSecond;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

FlightRecord call(uint64_t seq, Op op, const std::string& label, int64_t size, int64_t entered_ns, int64_t done_ns) {
  const std::vector<int64_t> shape{size};
  FlightRecord record{.seq = seq, .history = seq, .signature = CallSignature::of(op, "bf16", shape)};
  if (op == Op::kAllReduce) record.signature.reduce = ReduceOp::kSum;
  record.label = FixedText<80>(label);
  record.site = FixedText<48>("residency.cpp:45");
  record.step = static_cast<int64_t>(seq / 40);
  record.entered_ns = entered_ns;
  record.done_ns = done_ns;
  record.state = done_ns > 0 ? CallState::kDone : CallState::kLaunched;
  return record;
}

// A rank that trains: steps of forward gathers, backward gathers with reductions, and a loss; the last call waits.
RankReport training_rank(int rank, int world_size, uint64_t calls, double waits) {
  RankReport report{.rank = rank,
                    .node = rank / 8,
                    .local_rank = rank % 8,
                    .world_size = world_size,
                    .pid = 4000 + rank,
                    .host = "node-" + std::to_string(rank / 8),
                    .joined = true,
                    .life = Life::kRunning,
                    .phase = Phase::kBackward,
                    .detail = "text.layers.7",
                    .phase_seconds = waits,
                    .step = static_cast<int64_t>(calls / 40),
                    .read_ns = kRead + (rank / 8) * 777 * kSecond,
                    .realtime_offset_ns = kWallClock - (rank / 8) * 777 * kSecond};
  GroupReport group{.name = "data", .entered = calls, .history = calls};
  int64_t now = report.read_ns - static_cast<int64_t>(waits * 1e9) - static_cast<int64_t>(calls) * 5 * kMs;
  for (uint64_t seq = 1; seq <= calls; ++seq) {
    now += (seq % 40 == 0 ? 24 : 4) * kMs + (static_cast<int64_t>(seq) * 7919 + rank * 104729) % 1500 * 1000;
    const auto layer = static_cast<int>(seq % 20);
    const Op op = seq % 40 == 39 ? Op::kAllReduce : seq % 40 > 20 && seq % 2 == 0 ? Op::kReduceScatter : Op::kAllGather;
    const std::string label = op == Op::kAllReduce       ? "loss"
                              : op == Op::kReduceScatter ? "text.layers." + std::to_string(layer) + " grads"
                                                         : "text.layers." + std::to_string(layer) + " gather";
    const int64_t took = (op == Op::kReduceScatter ? 3100 : 1900) * 1000 + static_cast<int64_t>(seq % 7) * 300'000;
    group.tail.push_back(call(seq, op, label, 4096, now, seq == calls ? 0 : now + took));
  }
  if (group.tail.size() > FlightRing::kSize) {
    group.tail.erase(group.tail.begin(), group.tail.end() - static_cast<ptrdiff_t>(FlightRing::kSize));
  }
  if (calls > 0) {
    group.waiting_seq = calls;
    group.waiting_seconds = waits;
  }
  report.groups.push_back(std::move(group));
  report.facts = R"({"version": "0.4", "plan": "9f2c11aa03", "world size": "8"})";
  return report;
}

RankReport busy_rank(int rank, int world_size, uint64_t calls, double waits) {
  RankReport report = training_rank(rank, world_size, calls, waits + 0.01);
  FlightRecord& last = report.groups[0].tail.back();
  last.state = CallState::kDone;
  last.done_ns = last.entered_ns + 2 * kMs;
  report.groups[0].waiting_seq = 0;
  report.phase = Phase::kData;
  report.detail = "train.jsonl:17";
  report.phase_seconds = waits;
  report.stack = "#0 read\n#1 lockstep::data::JpegDecoder::decode(std::span<const char>)\n#2 lockstep::Loader::next()";
  return report;
}

PostMortem written_and_read(const std::string& name, const std::vector<RankReport>& ranks, const Diagnosis& diagnosis) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "post_mortem_page" / name;
  std::filesystem::remove_all(folder);
  EXPECT_EQ(write_post_mortem(folder.string(), ranks, to_json(diagnosis)), folder.string());
  const PostMortem found = read_post_mortem(folder);
  write_text(folder / "timeline.html", render_post_mortem(found));
  return found;
}

Diagnosis stall(RankSet culprits, uint64_t seq) {
  return {.fault = Fault::kStall,
          .culprits = std::move(culprits),
          .headline = "rank 1 is busy with loading data (train.jsonl:17) while 1 rank waits for it",
          .group = "data",
          .seq = seq,
          .op = "all_gather",
          .label = "text.layers.7 gather",
          .sides = {{{0}, "all_gather bf16[4096] \"text.layers.7 gather\"", "residency.cpp:45"},
                    {{1}, "has not come to it", ""}},
          .places = {"rank 1: loading data (train.jsonl:17) for 10m 2s, after step 7"},
          .why = "the file system does not answer: the process sleeps in the kernel (nfs_wait_on_request)",
          .fix = "look at the mount of train.jsonl on node-0; --patience 1200 gives a slow disk more time",
          .exit_code = 6};
}

// Rank 5 of 8 skipped a call: from then on all its calls differ.
std::vector<RankReport> mismatched(int world_size, int odd) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back(training_rank(rank, world_size, 290, 0.35));
    if (rank != odd) continue;
    auto& group = ranks.back().groups[0];
    for (size_t i = 286; i < 289; ++i) {
      group.tail[i].signature = group.tail[i + 1].signature;
      group.tail[i].label = group.tail[i + 1].label;
      group.tail[i].history += 1'000'000;
    }
    group.history = 999;
  }
  return ranks;
}

Diagnosis mismatch(int world_size, int odd) {
  RankSet others;
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != odd) others.add(rank);
  }
  const std::string who = "rank " + std::to_string(odd);
  return {.fault = Fault::kMismatch,
          .culprits = {odd},
          .headline = who + " skipped a call that " + others.phrase() + " made",
          .group = "data",
          .seq = 287,
          .op = "all_gather",
          .label = "text.layers.7 gather",
          .sides = {{others, "all_gather bf16[4096] \"text.layers.7 gather\"", "residency.cpp:45"},
                    {{odd}, "reduce_scatter bf16[4096] \"text.layers.8 grads\"", "grad_store.cpp:112"}},
          .places = {who + ": running the backward pass (text.layers.7), after step 7"},
          .why = who +
                 " left out all_gather bf16[4096] \"text.layers.7 gather\" at residency.cpp:45 and went on with "
                 "the next; values exchanged since then are mixed up",
          .fix =
              "every rank must make the same calls in the same order: look for a branch on the rank or on the data "
              "around residency.cpp:45",
          .exit_code = 6};
}

TEST(PostMortemPage, ShowsAStallOfTwoRanksWithTheLongWaitCutShort) {
  const auto found =
      written_and_read("two", {training_rank(0, 2, 260, 602), busy_rank(1, 2, 259, 602)}, stall({1}, 260));
  const std::string page = render_post_mortem(found);
  EXPECT_EQ(count(page, "<div class=\"row "), 2U);
  EXPECT_EQ(count(page, "<b class=\"never\">never came to #260</b>"), 1U);
  EXPECT_EQ(count(page, "class=\"pin\" style"), 1U);
  EXPECT_EQ(count(page, "class=\"idle\""), 1U);
  EXPECT_GE(count(page, "<em>10m 2s</em>"), 1U);  // the cut on the axis
  EXPECT_EQ(count(page, "<td class=\"soft\">not made</td>"), 1U);
  for (const char* part : {"http:", "https:", "<script", "<link", "@import", "src=", "url("}) {
    EXPECT_EQ(count(page, part), 0U) << part;
  }
}

TEST(PostMortemPage, MarksTheFirstDivergentCallOnEveryRow) {
  const auto found = written_and_read("eight", mismatched(8, 5), mismatch(8, 5));
  const std::string page = render_post_mortem(found);
  EXPECT_EQ(count(page, "<div class=\"row "), 8U);
  EXPECT_EQ(count(page, "class=\"pin\" style"), 8U);
  EXPECT_EQ(count(page, " marked\" style="), 8U);
  EXPECT_EQ(count(page, " culprit\"><div class=\"who\""), 1U);
  EXPECT_EQ(count(page, "<tr class=\"differs marked\">"), 1U);
  EXPECT_EQ(count(page, "<details class=\"rank"), 8U);
}

TEST(PostMortemPage, GroupsManyRanksByTheirStanding) {
  auto ranks = mismatched(100, 37);
  ranks[90].process.state = ProcessState::kGone;
  ranks[90].end = {.known = true, .signal = 9};
  ranks[90].gone_seconds = 0.3;
  const auto found = written_and_read("hundred", ranks, mismatch(100, 37));
  const auto rows = standings(found.ranks, {37});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].ranks.text(), "37");
  EXPECT_TRUE(rows[0].culprit);
  EXPECT_EQ(rows[1].ranks.text(), "0-36, 38-89, 91-99");
  EXPECT_EQ(rows[2].ranks.text(), "90");
  EXPECT_EQ(count(render_post_mortem(found), "<div class=\"row "), 3U);
}

TEST(PostMortemPage, StaysLegibleWhenTwoHundredRanksAllDiffer) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < 200; ++rank)
    ranks.push_back(training_rank(rank, 208, 220 + static_cast<uint64_t>(rank), 3));
  const auto found = written_and_read("all_differ", ranks, mismatch(200, 3));
  const auto rows = standings(found.ranks, {3});
  EXPECT_EQ(rows.size(), kMostRows);
  EXPECT_EQ(rows[0].ranks.text(), "3");
  const std::string page = render_post_mortem(found);
  EXPECT_EQ(count(page, "136 more ranks are in the folder"), 1U);
  EXPECT_EQ(count(page, "No report of ranks 200-207"), 1U);
  EXPECT_LT(page.size(), size_t{16} << 20);
}

TEST(PostMortemPage, ManyCulpritsShareRowsToo) {
  std::vector<RankReport> ranks;
  RankSet culprits;
  for (int rank = 0; rank < 200; ++rank) {
    ranks.push_back(training_rank(rank, 200, 50, 3));
    if (rank % 2 == 1) culprits.add(rank);
  }
  const auto rows = standings(ranks, culprits);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].ranks.size(), 100);
  EXPECT_TRUE(rows[0].culprit);
  EXPECT_FALSE(rows[1].culprit);
}

TEST(PostMortemPage, EscapesWhateverRanksHaveWritten) {
  const std::string evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>\x1b[31m";
  RankReport report = training_rank(0, 1, 3, 1);
  report.host = report.detail = report.facts = report.stack = report.process.waits_in = evil;
  report.groups[0].name = evil;
  report.last_words = {.exit_code = 1, .message = evil, .hint = evil, .place = evil};
  for (auto& record : report.groups[0].tail) {
    record.label = FixedText<80>(evil);
    record.site = FixedText<48>(evil);
    std::copy_n(evil.begin(), 8, record.signature.dtype.begin());
  }
  Diagnosis diagnosis{.culprits = {0},
                      .headline = evil,
                      .group = evil,
                      .seq = 3,
                      .op = evil,
                      .label = evil,
                      .sides = {{{0}, evil, evil}},
                      .places = {evil},
                      .why = evil,
                      .fix = evil,
                      .stack = evil,
                      .error_hint = evil};
  const std::string page = render_post_mortem(written_and_read("hostile", {report}, diagnosis));
  for (const char* part : {"<script", "<img", "\x1b"}) EXPECT_EQ(count(page, part), 0U) << part;
  EXPECT_GT(count(page, "&lt;script&gt;alert(&#39;x&#39;)"), 10U);
}

TEST(PostMortemPage, TakesAnyNumbers) {
  RankReport report = training_rank(0, 2, 12, 1), other = training_rank(1, 2, 12, 1);
  for (auto& record : report.groups[0].tail) {
    record.entered_ns = record.seq % 2 == 0 ? INT64_MIN : INT64_MAX;
    record.done_ns = record.seq % 3 == 0 ? INT64_MIN : INT64_MAX;
    record.signature.dims[0] = INT64_MIN;
  }
  report.realtime_offset_ns = INT64_MIN;
  report.pace = {.steps = 1, .step_ns = INT64_MIN};
  report.phase_seconds = report.gone_seconds = 1e300;
  report.process.state = ProcessState::kGone;
  report.world_size = INT32_MAX;
  const std::string page = render_post_mortem(
      {.text = "what people read", .diagnosis_json = to_json(stall({0}, 12)).dump(), .ranks = {report, other}});
  EXPECT_EQ(count(page, "nan"), 0U);
  EXPECT_EQ(count(page, "inf"), 0U);
}

TEST(PostMortemPage, NeedsNeitherCallsNorRanks) {
  const std::string none = render_post_mortem(written_and_read("none", {}, {.headline = "rank 3 never came"}));
  EXPECT_EQ(count(none, "No rank left a report."), 1U);
  RankReport absent{.rank = 1, .world_size = 2};
  RankReport silent{.rank = 0, .world_size = 2, .joined = true, .groups = {{.name = "data"}}};
  const auto found = written_and_read("empty", {silent, absent},
                                      {.fault = Fault::kAbsent, .culprits = {1}, .headline = "rank 1 never came"});
  const std::string page = render_post_mortem(found);
  EXPECT_EQ(count(page, "<div class=\"row "), 2U);
  EXPECT_EQ(count(page, "never came</span>"), 2U);
  EXPECT_EQ(count(page, "Calls around"), 0U);
}

TEST(PostMortemView, TakesADiagnosisOfAnyShape) {
  for (const char* json :
       {"[]", "3", "{\"text\": 1, \"culprits\": [-1, 1e9, \"x\", 2], \"sides\": [1, {}], \"seq\": -1.5}",
        "{\"fault\": \"unheard of\", \"places\": {}, \"sides\": \"x\"}", "{"}) {
    const Diagnosis diagnosis = diagnosis_of({.text = "what people read", .diagnosis_json = json});
    EXPECT_EQ(diagnosis.headline, "what people read") << json;
    EXPECT_EQ(diagnosis.fault, Fault::kError);
  }
  EXPECT_EQ(diagnosis_of({.diagnosis_json = "{\"culprits\": [-1, \"x\", 2, 4]}"}).culprits.text(), "2, 4");
}

TEST(PostMortemView, FindsTheRanksThatLeftNoReport) {
  const auto with = [](std::initializer_list<int> ranks) {
    std::vector<RankReport> reports;
    for (const int rank : ranks) reports.push_back({.rank = rank, .world_size = 6});
    return ranks_without_report(reports).text();
  };
  EXPECT_EQ(with({0, 1, 2, 3, 4, 5}), "");
  EXPECT_EQ(with({1, 2, 4}), "0, 3, 5");
  EXPECT_EQ(with({9}), "0-5");
  EXPECT_EQ(with({}), "");
}

TEST(PostMortemView, SaysWhatBecameOfARank) {
  RankReport report = training_rank(0, 2, 3, 2.5);
  EXPECT_EQ(state_of(report).text, "waits for 2.5s");
  report.process.state = ProcessState::kStopped;
  report.stopped_seconds = 5.1;
  EXPECT_EQ(state_of(report).text, "stopped for 5.1s");
  report.process.state = ProcessState::kGone;
  EXPECT_EQ(state_of(report).text, "process is gone");
  report.end = {.known = true, .signal = 9};
  EXPECT_EQ(state_of(report).text, "killed (SIGKILL)");
  report.end = {.known = true, .signal = 11};
  EXPECT_EQ(state_of(report).text, "crashed (SIGSEGV)");
  report.end = {.known = true, .exit_code = 3};
  EXPECT_EQ(state_of(report).text, "exited with 3");
  EXPECT_EQ(state_of({.rank = 1}).text, "never came");
}

TEST(TimelinePlan, AlignsHostsByTheirClocksAndDistrustsOneThatIsFarOff) {
  // Both hosts saw the same moment, with steady clocks 777 s apart.
  std::vector<RankReport> reports{training_rank(0, 9, 30, 1), training_rank(8, 9, 30, 1)};
  const auto first_bar = [&](size_t row) {
    return plan_timeline(standings(reports, {}), {}).rows[row].bars.back().from;
  };
  const double alone = first_bar(0), other = first_bar(1);
  EXPECT_NEAR(alone, other, 0.1);
  reports[1].realtime_offset_ns += 2 * kSecond;  // it was read two seconds later
  EXPECT_NEAR(first_bar(0), alone - 2, 1e-6);
  EXPECT_NEAR(first_bar(1), other, 1e-6);
  reports[1].realtime_offset_ns += 86'400 * kSecond;
  EXPECT_NEAR(first_bar(0), alone, 1e-6);
}

TEST(TimelinePlan, ShowsTheLastCallsAndAlwaysTheOneInQuestion) {
  const std::vector<RankReport> reports{training_rank(0, 2, 900, 1), training_rank(1, 2, 900, 1)};
  const auto late = plan_timeline(standings(reports, {}), {});
  EXPECT_EQ(late.num_recorded, 1800U);
  EXPECT_NEAR(static_cast<double>(late.num_shown), 400, 4);
  const auto early = plan_timeline(standings(reports, {}), {.group = "data", .seq = 100});
  EXPECT_TRUE(early.rows[0].has_marked);
  EXPECT_NEAR(static_cast<double>(early.num_shown), 2 * 812, 4);
}

TEST(TimelinePlan, GivesCallsThatOverlapLanesOfTheirOwn) {
  RankReport report{.rank = 0, .joined = true, .groups = {{.name = "data", .entered = 3}}, .read_ns = kRead};
  report.groups[0].tail = {call(1, Op::kAllGather, "a", 1, kRead - 9 * kMs, kRead - 5 * kMs),
                           call(2, Op::kAllGather, "b", 1, kRead - 8 * kMs, kRead - 4 * kMs),
                           call(3, Op::kAllGather, "c", 1, kRead - 5 * kMs, 0)};
  const std::vector<RankReport> reports{report};
  const auto plan = plan_timeline(standings(reports, {}), {});
  const auto& bars = plan.rows[0].bars;
  ASSERT_EQ(bars.size(), 3U);
  EXPECT_EQ(bars[0].lane, 0);
  EXPECT_EQ(bars[1].lane, 1);
  EXPECT_EQ(bars[2].lane, 0);
  EXPECT_EQ(plan.rows[0].num_lanes, 2);
  EXPECT_TRUE(bars[2].open);
  EXPECT_DOUBLE_EQ(bars[2].to, 0);
}

TEST(RankTimeline, WritesShortTimes) {
  EXPECT_EQ(short_time(0), "0 ms");
  EXPECT_EQ(short_time(350e-6), "350 µs");
  EXPECT_EQ(short_time(0.0125), "12.5 ms");
  EXPECT_EQ(short_time(3.21), "3.2s");
}

}  // namespace
}  // namespace lockstep
