#include "lockstep/guard/recorder.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/worker.h"
#include "lockstep/guard/report.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

const CallSignature kSum = CallSignature::of(Op::kAllReduce, "f32", std::array<int64_t, 1>{4});

RankReport read(const Recorder& recorder) { return read_board(recorder.board(), 64); }

TEST(Recorder, TellsCallsWithTheirPlaceAndStep) {
  Recorder recorder;
  recorder.introduce({.rank = 3, .world_size = 8, .local_rank = 1, .pid = 99, .host = FixedText<64>("h")});
  const int group = recorder.add_group("data");
  recorder.step_done(5);
  const uint64_t seq = recorder.enter(group, kSum, "loss", std::source_location::current());
  recorder.wait_begins(group, seq, Clock::now() - milliseconds(1500));
  const RankReport report = read(recorder);
  EXPECT_EQ(report.rank, 3);
  EXPECT_EQ(report.world_size, 8);
  EXPECT_EQ(report.life, Life::kRunning);
  ASSERT_NE(report.waiting(), nullptr);
  EXPECT_EQ(report.waiting()->name, "data");
  EXPECT_GE(report.waiting()->waiting_seconds, 1.5);
  ASSERT_EQ(report.groups.size(), 1U);
  const FlightRecord* call = report.groups[0].find(seq);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->call(), "all_reduce f32[4] \"loss\"");
  EXPECT_EQ(call->site.view().substr(0, 18), "recorder_test.cpp:");
  EXPECT_EQ(call->step, 5);
  recorder.wait_ends(group, milliseconds(1500));
  EXPECT_EQ(read(recorder).waiting(), nullptr);
}

// A rank that takes what anybody sends comes to calls that nobody can count.
TEST(Recorder, OfAClosedGroupNobodySaysThatItWasNotCome) {
  Recorder recorder;
  const int group = recorder.add_group("from rank 1 to rank 0", RankSet{0, 1});
  (void)recorder.enter(group, kSum, "", std::source_location::current());
  recorder.set_patience(group, std::chrono::hours(2));
  recorder.close_group(group);
  const RankReport report = read(recorder);
  ASSERT_EQ(report.groups.size(), 1U);
  EXPECT_EQ(report.groups[0].entered, uint64_t{INT64_MAX});
  EXPECT_TRUE(report.groups[0].tail.empty());
  EXPECT_EQ(report.groups[0].patience_seconds, 7200);
}

// Of a job that makes groups and destroys them, over and over.
TEST(Recorder, APlaceThatWasLeftIsAnothersWhenNoCallIsOpenThere) {
  Recorder recorder;
  const auto here = std::source_location::current();
  const int group = recorder.add_group("team 1", RankSet{0, 1});
  recorder.set_patience(group, std::chrono::hours(2));
  const uint64_t open = recorder.enter(group, kSum, "first", here);
  recorder.leave_group(group);
  EXPECT_FALSE(recorder.is_free(group));
  recorder.set_state(group, open, CallState::kDone);
  EXPECT_TRUE(recorder.is_free(group));
  const uint64_t id = recorder.board().groups[0].id.load();
  recorder.replace_group(group, "team 2", RankSet{0, 2});
  EXPECT_NE(recorder.board().groups[0].id.load(), id);
  EXPECT_FALSE(recorder.is_free(group));
  RankReport report = read(recorder);
  ASSERT_EQ(report.groups.size(), 1U);
  EXPECT_EQ(report.groups[0].name, "team 2");
  EXPECT_EQ(report.groups[0].members, (RankSet{0, 2}));
  EXPECT_EQ(report.groups[0].entered, 0U);
  EXPECT_EQ(report.groups[0].patience_seconds, 0);
  EXPECT_FALSE(report.groups[0].left);
  EXPECT_FALSE(recorder.ring(group).find(1));
  recorder.set_state(group, open, CallState::kFailed);  // of the one before
  EXPECT_EQ(recorder.enter(group, kSum, "second", here), 1U);
  Recorder other;
  (void)other.enter(other.add_group("team 2", RankSet{0, 2}), kSum, "second", here);
  report = read(recorder);
  EXPECT_EQ(report.groups[0].tail.at(0).state, CallState::kEntered);
  EXPECT_EQ(report.groups[0].history, read(other).groups[0].history) << "it counts from the first call";
}

// Its thread has gone on; what it then waits for itself comes first.
TEST(Recorder, TellsTheCallInWhichADeviceStands) {
  Recorder recorder;
  const int group = recorder.add_group("data");
  const uint64_t first = recorder.enter(group, kSum, "one", std::source_location::current());
  const uint64_t second = recorder.enter(group, kSum, "two", std::source_location::current());
  recorder.device_waits(group, first, Clock::now() - milliseconds(1500));
  ASSERT_NE(read(recorder).waiting(), nullptr);
  EXPECT_EQ(read(recorder).waiting()->waiting_seq, first);
  EXPECT_GE(read(recorder).waiting()->waiting_seconds, 1.5);
  recorder.wait_begins(group, second, Clock::now());
  recorder.device_waits(group, first, Clock::now());
  recorder.device_passed(group, first);
  EXPECT_EQ(read(recorder).waiting()->waiting_seq, second);
  recorder.wait_ends(group, {});
  recorder.device_waits(group, second, Clock::now());
  recorder.device_passed(group, second);
  EXPECT_EQ(read(recorder).waiting(), nullptr);
}

TEST(Recorder, ACallMayBeOpenWhileTheRankDoesSomethingElse) {
  Recorder recorder;
  const int open = recorder.add_group("data"), other = recorder.add_group("control");
  const uint64_t first = recorder.enter(open, kSum, "one", std::source_location::current());
  recorder.device_waits(open, first, Clock::now(), /*stands=*/false);
  EXPECT_FALSE(read(recorder).waiting()->stands);
  recorder.device_waits(open, first, Clock::now());  // and has come to wait for it
  EXPECT_TRUE(read(recorder).waiting()->stands);
  recorder.device_waits(open, first, Clock::now(), /*stands=*/false);
  recorder.wait_begins(other, recorder.enter(other, kSum, "two", std::source_location::current()), Clock::now());
  EXPECT_EQ(read(recorder).waiting()->name, "control") << "where it stands comes first";
  recorder.leave_group(other);
  EXPECT_TRUE(read(recorder).groups[1].left);
  EXPECT_TRUE(report_from_json(to_json(read(recorder))).groups[1].left);
  EXPECT_TRUE(report_from_json(to_json(read(recorder))).groups[1].stands);
}

TEST(Recorder, ABoardHasRoomForFourGroups) {
  Recorder recorder;
  for (int i = 0; i < static_cast<int>(Board::kGroups); ++i) EXPECT_EQ(recorder.add_group("g" + std::to_string(i)), i);
  EXPECT_THROW(recorder.add_group("one more"), Error);
}

TEST(Recorder, APhaseEndsWhereItBegan) {
  Recorder recorder;
  recorder.enter_phase(Phase::kForward, "layer 3");
  recorder.during(Phase::kSave, "model.safetensors",
                  [&] { EXPECT_EQ(read(recorder).place(), "saving a checkpoint (model.safetensors)"); });
  EXPECT_EQ(read(recorder).place(), "in the forward pass (layer 3)");
}

TEST(Recorder, StandsAtTheSamePlaceSinceTheLastTimeThatItSaysSo) {
  Recorder recorder;
  recorder.enter_phase(Phase::kForward, "layers.1");
  const auto place = [&] { return recorder.board().place.read_any(); };
  recorder.stand_at("layers.2", 1000);
  recorder.stand_at("layers.2", 2000);
  EXPECT_EQ(place().detail.view(), "layers.2");
  EXPECT_EQ(place().since_ns, 2000);
  recorder.stand_at("layers.3", 3000);
  EXPECT_EQ(place().detail.view(), "layers.3");
  EXPECT_EQ(place().since_ns, 3000);
}

// The words are on the board before any clean-up further out can block.
TEST(Recorder, WhatABodyThrowsAreTheLastWordsAtOnce) {
  Recorder recorder;
  recorder.step_done(4);
  const auto fails = [] { throw data_error("row 17: no such image", "mend it"); };
  EXPECT_THROW(recorder.during(Phase::kData, "rows.jsonl:17", fails), Error);
  const RankReport report = read(recorder);
  ASSERT_TRUE(report.last_words);
  EXPECT_EQ(report.last_words->message, "row 17: no such image");
  EXPECT_EQ(report.last_words->hint, "mend it");
  EXPECT_EQ(report.last_words->exit_code, 3);
  EXPECT_EQ(report.last_words->place, "waiting for data (rows.jsonl:17) after step 4");
  EXPECT_EQ(report.life, Life::kFailing);
  EXPECT_EQ(report.phase, Phase::kData);                                       // where it failed
  recorder.say_last_words({.message = "closed by peer"}, /*secondary=*/true);  // the first one counts
  EXPECT_EQ(read(recorder).last_words->message, "row 17: no such image");
  EXPECT_FALSE(read(recorder).last_words->secondary);
}

TEST(Recorder, WaitingIsNoWork) {
  Recorder recorder;
  const int group = recorder.add_group("data");
  recorder.enter_phase(Phase::kBackward);
  recorder.wait_ends(group, std::chrono::hours(1));  // told, not slept
  recorder.step_done(1);
  const Pace pace = read(recorder).pace;
  EXPECT_EQ(pace.steps, 1);
  EXPECT_EQ(pace.waiting_ns, int64_t{3600} * 1'000'000'000);
  EXPECT_LE(pace.phase_ns[static_cast<size_t>(Phase::kBackward)], 0);
}

TEST(Recorder, FactsAreJsonWhateverTheirBytes) {
  Recorder recorder;
  recorder.add_fact("model", "ab\xff\"12");
  recorder.add_fact("plan", "x");
  EXPECT_EQ(read(recorder).facts, "{\"model\":\"ab\xEF\xBF\xBD\\\"12\",\"plan\":\"x\"}");
}

TEST(Recorder, AnotherValueOfAFactBeginsAnotherRun) {
  Recorder recorder;
  recorder.add_fact("version", "1");
  recorder.add_fact("plan", "x");
  recorder.add_fact("plan", "x");
  EXPECT_EQ(read(recorder).facts, R"({"plan":"x","version":"1"})");
  recorder.add_fact("version", "1");
  recorder.add_fact("plan", "y");
  EXPECT_EQ(read(recorder).facts, R"({"plan":"y","run":"2","version":"1"})");
}

TEST(Recorder, NobodyWaitsForAnAgentThatIsNotThere) {
  Recorder recorder;
  EXPECT_EQ(recorder.await_ending(std::chrono::hours(1)), std::nullopt);
  recorder.finish(0);
  EXPECT_EQ(read(recorder).life, Life::kFinished);
}

TEST(Recorder, TheEndingWakesWhoWaits) {
  Recorder recorder;
  recorder.set_watched(/*strict=*/true);
  const int group = recorder.add_group("data");
  const uint64_t seq = recorder.enter(group, kSum, "loss", std::source_location::current());
  Worker agent("agent", [&](std::stop_token) {
    Board& board = recorder.board();
    const auto ring = [&] {
      board.bell.fetch_add(1);
      wake_all(board.bell);
    };
    std::this_thread::sleep_for(milliseconds(20));
    board.groups[0].cleared.store(seq);
    ring();
    std::this_thread::sleep_for(milliseconds(20));
    board.ending.write({.exit_code = 6, .message = FixedText<8192>("rank 1 died")});
    board.has_ending.store(1, std::memory_order_release);
    ring();
  });
  recorder.await_clearance(group, seq, std::chrono::hours(1));
  EXPECT_EQ(recorder.board().groups[0].cleared.load(), seq);
  const auto ending = recorder.await_ending(std::chrono::hours(1));
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->message.view(), "rank 1 died");
  EXPECT_TRUE(recorder.has_ending());
  recorder.await_clearance(group, seq + 1, std::chrono::hours(1));  // the job has ended: nothing to wait for
  agent.join();
}

}  // namespace
}  // namespace lockstep
