#include "lockstep/guard/census.h"

#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/guard/packed_calls.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

RankReport full_report() {
  RankReport report = running_rank(3, 8);
  report.node = 1;
  report.detail = "layers.3";
  report.phase_seconds = 2.5;
  report.process = {.state = ProcessState::kStopped, .in_kernel = true, .waits_in = "nfs"};
  report.end = {.known = true, .out_of_memory = true, .exit_code = 1, .signal = 9};
  report.stopped_seconds = 1;
  report.gone_seconds = 2;
  report.pace = {.steps = 7, .step_ns = 70, .waiting_ns = 5};
  report.pace.phase_ns[2] = 11;
  report.last_words = {
      .exit_code = 7, .at_ns = 123, .secondary = true, .shared = true, .message = "m", .hint = "h", .place = "p"};
  report.facts = R"({"model":"x"})";
  report.stack = "#0";
  report.post_mortem_dir = "out";
  report.realtime_offset_ns = -5;
  wait_in_last(add_calls(report, training_calls(3)), 1.5);
  report.groups[0].tail[4].state = CallState::kFailed;
  report.groups[0].tail[4].done_ns = report.groups[0].tail[4].entered_ns + 77;
  report.groups[0].tail[5].step = 9;
  report.groups[0].tail[7].signature.has_splits = 1;
  report.groups[0].tail[7].signature.splits = ~uint64_t{0};
  add_calls(report, {}, "control");
  return report;
}

TEST(ReportJson, BothWaysKeepEverything) {
  const RankReport report = full_report();
  for (const Calls calls : {Calls::kPlain, Calls::kPacked}) {
    const Json json = to_json(report, calls);
    std::string bytes;
    Json::to_cbor(json, bytes);
    const RankReport read = report_from_json(Json::from_cbor(bytes));
    EXPECT_EQ(to_json(read).dump(), to_json(report).dump());
    ASSERT_EQ(read.groups.size(), 2U);
    ASSERT_EQ(read.groups[0].tail.size(), 18U);
    for (size_t i = 0; i < 18; ++i) {
      const FlightRecord &a = read.groups[0].tail[i], &b = report.groups[0].tail[i];
      EXPECT_EQ(a.signature, b.signature);
      EXPECT_EQ(a.call(), b.call());
      EXPECT_EQ(a.history, b.history);
    }
  }
}

TEST(PackedCalls, AreSmall) {
  std::string packed, plain;
  RankReport report = running_rank(0, 1);
  Json::to_cbor(packed_calls(add_calls(report, training_calls(20)).tail), packed);
  Json::to_cbor(to_json(report)["groups"][0]["calls"], plain);
  EXPECT_LT(packed.size() * 4, plain.size());
  EXPECT_TRUE(unpacked_calls(packed_calls({})).empty());
}

TEST(PackedCalls, HoldNoMoreThanARing) {
  TestCalls many = training_calls(200);
  RankReport report = running_rank(0, 1);
  auto tail = add_calls(report, many).tail;
  EXPECT_EQ(unpacked_calls(packed_calls(tail)).size(), FlightRing::kSize);
  tail.push_back(tail.back());
  EXPECT_THROW(unpacked_calls(packed_calls(tail)), Error);
}

/// Reads it or says why not: an Error, nothing else.
template <typename Read>
bool survives(Read read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return true;
  }
}

void damage(Json& json, std::mt19937_64& random, int depth = 0) {
  if (json.is_structured() && !json.empty() && (depth < 2 || random() % 4 != 0)) {
    auto at = json.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random() % json.size()));
    if (random() % 12 == 0) {
      json.erase(at);
      return;
    }
    return damage(*at, random, depth + 1);
  }
  const std::vector<Json> strange{nullptr,
                                  -1,
                                  INT64_MAX,
                                  INT64_MIN,
                                  UINT64_MAX,
                                  1e308,
                                  std::numeric_limits<double>::quiet_NaN(),
                                  true,
                                  "text",
                                  std::string(100'000, 'x'),
                                  Json::array(),
                                  Json::object(),
                                  Json::array({1, 2}),
                                  "\xff\xfe",
                                  255,
                                  1 << 30,
                                  Json::binary({0xff, 0xff, 0xff}),
                                  Json(std::vector<int>(5000, 1))};
  json = strange[random() % strange.size()];
}

TEST(CensusJson, DamagedOnesAreRefusedOrHarmless) {
  constexpr uint64_t kSeed = 17;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  RankReport other = full_report();
  other.rank = 5;
  other.step += 1;
  const Json valid = to_json(census_of({full_report(), other}));
  const Json plain = to_json(full_report());
  size_t read_well = 0;
  for (int round = 0; round < 1000; ++round) {
    Json broken = valid;
    for (uint64_t i = 0, changes = 1 + random() % 3; i < changes; ++i) damage(broken, random);
    ASSERT_TRUE(survives([&] {
      Census census = census_from_json(broken);
      census.add(census_from_json(valid));
      read_well += 1;
      const Judgement judgement = judge(census);
      std::string bytes;
      Json::to_cbor(to_json(census), bytes);
      (void)to_json(judgement.diagnosis).dump(-1, ' ', false, Json::error_handler_t::replace);
    })) << round;
    Json alone = plain;
    damage(alone, random);
    ASSERT_TRUE(survives([&] { (void)to_json(report_from_json(alone)); })) << round;
  }
  fmt::print("{} of 1000 damaged ones could be read\n", read_well);
}

TEST(CensusJson, AnyBytesAreRefusedOrHarmless) {
  constexpr uint64_t kSeed = 23;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  std::string valid;
  Json::to_cbor(to_json(census_of({full_report()})), valid);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = valid;
    for (uint64_t i = 0, flips = 1 + random() % 6; i < flips; ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    Json json;
    try {
      json = Json::from_cbor(bytes);
    } catch (const Json::exception&) {
      continue;
    }
    ASSERT_TRUE(survives([&] { (void)judge(census_from_json(json)); })) << round;
  }
}

TEST(Census, RanksThatStandAlikeAreOneClass) {
  std::vector<RankReport> reports;
  for (int rank = 0; rank < 100; ++rank) {
    reports.push_back(running_rank(rank, 100));
    wait_in_last(add_calls(reports.back(), training_calls(2)), rank);
    reports.back().phase_seconds = rank;
  }
  reports[42].step += 1;
  const Census census = census_of(reports);
  ASSERT_EQ(census.classes.size(), 2U);
  EXPECT_EQ(census.classes[0].ranks.text(), "0-41, 43-99");
  EXPECT_EQ(census.classes[0].sample.rank, 0);
  EXPECT_DOUBLE_EQ(census.classes[0].sample.groups[0].waiting_seconds, 99);
  EXPECT_DOUBLE_EQ(census.classes[0].sample.phase_seconds, 99);
  EXPECT_EQ(census.of(42), &census.classes[1]);
  EXPECT_EQ(census.of(100), nullptr);
  EXPECT_EQ(census.all().size(), 100);
}

TEST(RankSet, KeepsStretchesApart) {
  constexpr uint64_t kSeed = 29;
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    RankSet set;
    std::vector<bool> plain(64);
    for (int i = 0; i < 12; ++i) {
      const auto first = static_cast<int>(random() % 60);
      const int last = std::min(63, first + static_cast<int>(random() % 5));
      set.add_stretch(first, last);
      for (int rank = first; rank <= last; ++rank) plain[static_cast<size_t>(rank)] = true;
    }
    int count = 0;
    for (int rank = 0; rank < 64; ++rank) {
      EXPECT_EQ(set.contains(rank), plain[static_cast<size_t>(rank)]) << "seed " << kSeed;
      count += plain[static_cast<size_t>(rank)] ? 1 : 0;
    }
    EXPECT_EQ(set.size(), count);
    for (size_t i = 1; i < set.ranges().size(); ++i) {
      EXPECT_GT(set.ranges()[i].first, set.ranges()[i - 1].second + 1);
    }
  }
  EXPECT_EQ(RankSet({5}).phrase(), "rank 5");
  EXPECT_EQ(RankSet({2, 0, 1, 5}).phrase(), "ranks 0-2, 5");
}

}  // namespace
}  // namespace lockstep
