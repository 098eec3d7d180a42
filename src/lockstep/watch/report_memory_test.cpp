#include "lockstep/watch/report_memory.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

DeviceAccount device(std::string name, int64_t params_mib, int64_t activations_mib, int64_t capacity_mib) {
  const int64_t bytes = (params_mib + activations_mib) * kMib;
  return {.name = std::move(name),
          .capacity = capacity_mib * kMib,
          .phases = {{"load", params_mib * kMib, {{"parameters", params_mib * kMib}}, "embed"},
                     {"backward",
                      bytes,
                      {{"parameters", params_mib * kMib}, {"activations", activations_mib * kMib}},
                      "layers.<3>"}}};
}

MemoryMeasured two_ranks(int64_t capacity_mib) {
  MemoryMeasured out{.step = 5, .predicted = {}, .ranks = {}};
  out.predicted.batch = "1 micro-batch of 3 rows";
  out.predicted.devices = {device("device 0", 60, 40, capacity_mib), device("device 1", 50, 30, capacity_mib)};
  for (const int64_t more : {0, 2}) {
    RankMemory rank;
    rank.since_start.devices = {device("virtual:0", 60, 38 + more, capacity_mib),
                                device("virtual:1", 50, 30, capacity_mib)};
    out.ranks.push_back(rank);
  }
  return out;
}

TEST(ReportMemory, DrawsABarADeviceWithTheRanksBesideIt) {
  const std::string page = memory_section(two_ranks(150));
  EXPECT_EQ(count(page, R"(<tr class="predicted">)"), 2U);
  EXPECT_EQ(count(page, R"(<tr class="measured">)"), 4U);
  EXPECT_EQ(count(page, "title=\"rank 1 measured 100.00 MiB\""), 1U);
  EXPECT_EQ(count(page, "<b class=\"has\""), 2U);
  EXPECT_EQ(count(page, "layers.&lt;3&gt;"), 6U);
  EXPECT_EQ(count(page, "layers.<3>"), 0U);
  // The capacity, with 2 % of room, is the width: 60 MiB of 153.
  EXPECT_EQ(count(page, R"(<i class="s0" style="width:39.22%" title="parameters 60.00 MiB">)"), 3U);
}

TEST(ReportMemory, LeavesOutACapacityFarBeyondWhatIsNeeded) {
  const std::string page = memory_section(two_ranks(80 << 10));
  EXPECT_EQ(count(page, "<b class=\"has\""), 0U);
  EXPECT_EQ(count(page, "has 80.00 GiB"), 2U);
}

TEST(ReportMemory, ComparesEachPhaseWithTheRankThatNeededMost) {
  const std::string page = memory_section(two_ranks(0));
  EXPECT_EQ(count(page, R"(<td>backward</td><td class="num">100.00 MiB</td><td class="num">100.00 MiB</td>)"
                        R"(<td class="num">0.0%</td><td class="num">1</td>)"),
            1U);
  EXPECT_EQ(count(page, R"(<tr class="total"><td>peak</td>)"), 2U);
}

TEST(ReportMemory, ShowsOfManyRanksTheHighestAndTheLowest) {
  MemoryMeasured memory = two_ranks(0);
  while (memory.ranks.size() < 9) memory.ranks.insert(memory.ranks.begin() + 1, memory.ranks.front());
  const std::string page = memory_section(memory);
  EXPECT_EQ(count(page, R"(<tr class="measured">)"), 4U);
  EXPECT_EQ(count(page, "rank 8, highest"), 1U);
  EXPECT_EQ(count(page, "rank 7, lowest"), 1U);
}

TEST(ReportMemory, DrawsTheForecastAloneAndTheMeasuredAlone) {
  const Json forecast = as_json(two_ranks(0).predicted);
  const std::string alone = report_memory_html(forecast, Json());
  EXPECT_EQ(count(alone, R"(<tr class="predicted">)"), 2U);
  EXPECT_EQ(count(alone, R"(<tr class="measured">)"), 0U);
  EXPECT_EQ(count(alone, "measured peak of a rank"), 0U);
  MemoryMeasured measured = two_ranks(0);
  EXPECT_EQ(report_memory_html(forecast, memory_json(measured)), memory_section(measured));
  measured.predicted = {};
  EXPECT_EQ(count(report_memory_html(Json(), memory_json(measured)), R"(<tr class="measured">)"), 4U);
  EXPECT_EQ(report_memory_html(Json(), Json()), "");
}

}  // namespace
}  // namespace lockstep
