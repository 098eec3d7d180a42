#include "lockstep/watch/memory_summary.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/watch/jsonl_sink.h"
#include "lockstep/watch/memory_sink.h"
#include "lockstep/watch/memory_warnings.h"

namespace lockstep {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

MemoryAccount account(std::string device, int64_t forward_mib, int64_t backward_mib, std::string batch = "2 rows") {
  MemoryAccount out;
  out.batch = std::move(batch);
  out.devices.push_back(
      {.name = std::move(device),
       .alive = 10 * kMib,
       .phases = {{"forward", forward_mib * kMib, {{"activations", forward_mib * kMib}}, "embed"},
                  {"backward", backward_mib * kMib, {{"activations", backward_mib * kMib}}, "head"}}});
  return out;
}

/// Predicted: 200 MiB. Ranks need so many.
MemoryMeasured measured(const std::vector<int64_t>& ranks_mib, const std::vector<std::string>& batches = {}) {
  MemoryMeasured out{.step = 7, .max_steps = 9, .predicted = account("device 0", 100, 200, "3 rows"), .ranks = {}};
  for (size_t rank = 0; rank < ranks_mib.size(); ++rank) {
    RankMemory one{.resident_bytes = 400 * kMib, .uncounted_bytes = 30 * kMib};
    one.since_start = account("cpu", 90, ranks_mib[rank], rank < batches.size() ? batches[rank] : "2 rows");
    one.since_last = account("cpu", 80, ranks_mib[rank] - 1);
    out.ranks.push_back(one);
  }
  return out;
}

TEST(MemorySummary, TellsTheFullestRankBesideTheForecastInALineADevice) {
  EXPECT_EQ(memory_summary(measured({190, 195, 185})),
            std::vector<std::string>{"memory: cpu predicted 200.00 MiB, measured 195.00 MiB (rank 1)"});
  MemoryMeasured alone = measured({190});
  EXPECT_EQ(memory_summary(alone), std::vector<std::string>{"memory: cpu predicted 200.00 MiB, measured 190.00 MiB"});
  alone.predicted = {};
  alone.ranks.front().since_start.host = account("host", 1, 2).devices.front();
  EXPECT_EQ(memory_summary(alone),
            (std::vector<std::string>{"memory: cpu measured 190.00 MiB", "memory: host measured 2.00 MiB"}));
  EXPECT_TRUE(memory_summary({}).empty());
}

TEST(MemorySummary, TellsAtMostEightDevices) {
  MemoryMeasured many;
  many.ranks.emplace_back();
  for (int i = 0; i < 12; ++i) {
    many.ranks[0].since_start.devices.push_back(account("d" + std::to_string(i), 1, 2).devices[0]);
  }
  EXPECT_EQ(memory_summary(many).size(), 9U);
  EXPECT_EQ(memory_summary(many).back(), "memory: the other devices stand in memory.json");
}

TEST(MemorySummary, RecordsOfManyRanksTheExtremesOnly) {
  std::vector<int64_t> ranks(40, 150);
  ranks[7] = 120;
  ranks[31] = 180;
  const Json record = memory_record(measured(ranks));
  EXPECT_EQ(record.at("global_step/max_steps"), "7/9");
  const Json& told = record.at(kMemoryRecordKey);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told.at(0).at("rank"), 7);
  EXPECT_EQ(told.at(1).at("rank"), 31);
  EXPECT_EQ(told.at(1).at("devices").at(0).at("peak"), 179 * kMib);
  EXPECT_EQ(told.at(1).at("devices").at(0).at("phases").at("forward"), 80 * kMib);
}

TEST(MemoryWarnings, NameRanksThatDifferOnceAndWhy) {
  MemoryWarnings warnings;
  const MemoryMeasured memory = measured({100, 160, 130}, {"3 rows of 20 tokens", "3 rows of 58 tokens", "3 rows"});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(warnings.add(memory).empty()) << i;
  EXPECT_EQ(warnings.add(memory),
            std::vector<std::string>{"ranks differ in memory on cpu: rank 1 needed 160.00 MiB, 60% more than rank 0 "
                                     "with 100.00 MiB; their batches differ: rank 1 had 3 rows of 58 tokens, rank 0 3 "
                                     "rows of 20 tokens"});
  EXPECT_TRUE(warnings.add(memory).empty());
}

TEST(MemoryWarnings, SayWhenBatchesAreNotTheReason) {
  MemoryMeasured memory = measured({100, 160});
  memory.last = true;
  EXPECT_EQ(MemoryWarnings().add(memory),
            std::vector<std::string>{"ranks differ in memory on cpu: rank 1 needed 160.00 MiB, 60% more than rank 0 "
                                     "with 100.00 MiB; their largest batches are alike (2 rows), so what they hold "
                                     "differs"});
}

TEST(MemoryWarnings, LeaveSmallDifferencesAlone) {
  for (const auto& ranks : {std::vector<int64_t>{1000, 1049}, {100, 115}, {210, 200}}) {
    MemoryMeasured memory = measured(ranks);
    memory.last = true;
    if (ranks.front() > 500) memory.predicted = {};
    EXPECT_TRUE(MemoryWarnings().add(memory).empty()) << ranks.front();
  }
}

TEST(MemoryWarnings, TellOnceThatMoreWasNeededThanPredicted) {
  MemoryWarnings warnings;
  EXPECT_TRUE(warnings.add(measured({209})).empty());
  EXPECT_EQ(
      warnings.add(measured({230})),
      std::vector<std::string>{"cpu needed 230.00 MiB on rank 0 in backward at head, 15% more than the 200.00 MiB "
                               "that were predicted for 3 rows; its largest batch was 2 rows"});
  EXPECT_TRUE(warnings.add(measured({250})).empty());
}

struct Heard : EventSink {
  void on(const Event& event) override {
    if (const auto* notice = std::get_if<Notice>(&event)) texts.push_back(notice->text);
  }
  std::vector<std::string> texts;
};

std::filesystem::path fresh_file(const char* name) {
  const auto path = std::filesystem::path(testing::TempDir()) / "memory_summary" / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path.parent_path());
  return path;
}

TEST(MemorySink, WritesTheNewestAtTheEndAlsoOfAFailedRunAndSaysWarnings) {
  const auto path = fresh_file("memory.json");
  Heard heard;
  EventBus bus;
  bus.add(heard);
  MemorySink sink(path, bus);
  sink.on(measured({100}));
  sink.on(measured({230, 190}));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_EQ(heard.texts.size(), 1U);
  EXPECT_TRUE(heard.texts.front().starts_with("cpu needed 230.00 MiB")) << heard.texts.front();
  sink.on(RunEnded{.outcome = "rank 1 was killed", .exit_code = 6});
  const Json written = read_json(path);
  EXPECT_EQ(written.at("step"), 7);
  EXPECT_EQ(written.at("predicted").at("devices").at(0).at("peak"), 200 * kMib);
  EXPECT_EQ(written.at("peaks").at(0), Json({{"device", "cpu"},
                                             {"rank", 0},
                                             {"predicted", 200 * kMib},
                                             {"measured", 230 * kMib},
                                             {"phase", "backward"},
                                             {"at", "head"}}));
  EXPECT_EQ(written.at("ranks").at(1).at("since_start").at("devices").at(0).at("phases").at("backward").at("bytes"),
            190 * kMib);
}

TEST(MemorySink, WritesNothingWhereNothingWasMeasured) {
  const auto path = fresh_file("none.json");
  const EventBus bus;
  MemorySink sink(path, bus);
  sink.on(RunEnded{});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(JsonlSink, KeepsMemoryRecordsOfTheStepsBeforeAResume) {
  const auto path = fresh_file("logging.jsonl");
  {
    JsonlSink log(path);
    log.on(RunStarted{.verb = "sft", .max_steps = 9});
    log.on(StepDone{.step = 7, .max_steps = 9});
    log.on(measured({100}));
    log.on(StepDone{.step = 8, .max_steps = 9});
  }
  JsonlSink log(path);
  log.on(RunStarted{.verb = "sft", .start_step = 7, .max_steps = 9});
  log.on(RunEnded{.outcome = "done"});
  const auto lines = read_text(path);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);  // step 7, its memory, summary, closing record
  const auto closing = Json::parse(lines.substr(lines.rfind('\n', lines.size() - 2) + 1));
  EXPECT_EQ(closing.at("log_history").size(), 1U);
}

}  // namespace
}  // namespace lockstep
