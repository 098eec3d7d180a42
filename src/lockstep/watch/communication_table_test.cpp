#include "lockstep/watch/communication_table.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/watch/report_communication.h"

namespace lockstep {
namespace {

CommunicationFigures two_ranks() {
  return {.ranks = 2,
          .seconds = 20,
          .transport = "shared memory",
          .waited_for = 1,
          .kinds = {{.name = "gather",
                     .operation = "all_gather",
                     .of_parameters = true,
                     .calls = 1200,
                     .bytes = int64_t{3} << 30,
                     .busy_seconds = 4,
                     .exposed_seconds = 1,
                     .late_seconds = 0.25,
                     .longest_exposed_seconds = 1.5,
                     .longest_rank = 0},
                    {.name = "step contract",
                     .operation = "all_gather",
                     .calls = 100,
                     .bytes = 12'800,
                     .exposed_seconds = 0.5,
                     .longest_exposed_seconds = 0.5}},
          .labels = {{.name = "layers.<0> gather",
                      .operation = "all_gather",
                      .of_parameters = true,
                      .calls = 1200,
                      .bytes = int64_t{3} << 30,
                      .busy_seconds = 4,
                      .exposed_seconds = 1,
                      .late_seconds = 0.25}}};
}

TEST(CommunicationTable, HasALineAKindAndOneForAll) {
  const auto lines = communication_table(two_ranks());
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0],
            "communication of 2 ranks over shared memory, most waiting was for rank 1; one rank, mean of all, in 20s:");
  EXPECT_EQ(
      lines[1],
      "  what           operation   calls      bytes  busy s  exposed s  late s   GB/s  bus GB/s  of run  longest");
  EXPECT_EQ(
      lines[2],
      "  gather         all_gather   1200   3.00 GiB   4.000      1.000   0.250  0.805     0.403    5.0%  rank 0: "
      "1.500");
  EXPECT_EQ(lines[3],
            "  step contract  all_gather    100  12.50 KiB       -      0.500       -      -         -    2.5%");
  EXPECT_EQ(lines[4],
            "  all                         1300   3.00 GiB       -      1.500       -      -         -    7.5%");
  EXPECT_EQ(lines[5].find("  busy: "), 0U);
}

TEST(CommunicationTable, ASmallBandwidthIsNotNothing) {
  const auto bandwidth = [](int64_t bytes) {
    const CommunicationLine line{.operation = "broadcast", .bytes = bytes, .busy_seconds = 1};
    return communication_cells(line, {.ranks = 2, .seconds = 1}).bus_bandwidth;
  };
  EXPECT_EQ(bandwidth(0), "-");
  EXPECT_EQ(bandwidth(999'999), "<0.001");
  EXPECT_EQ(bandwidth(1'000'000), "0.001");
  EXPECT_EQ(bandwidth(12'345'678'901), "12.346");
}

TEST(CommunicationTable, OfOneRankOrNoFiguresIsEmpty) {
  EXPECT_TRUE(communication_table({}).empty());
  EXPECT_EQ(communication_section({}), "");
}

TEST(CommunicationTable, ShowsEachLabelWhenAsked) {
  auto figures = two_ranks();
  figures.every_label = true;
  const auto lines = communication_table(figures);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[2].find("  layers.<0> gather  all_gather"), 0U);
}

TEST(CommunicationTable, FoldsTheShortestOfTheKindsThatAreNotOfParameters) {
  CommunicationFigures figures{.ranks = 2, .seconds = 1};
  for (int i = 0; i < 20; ++i) {
    figures.kinds.push_back({.name = "control " + std::string(1, static_cast<char>('a' + i)),
                             .operation = "all_reduce",
                             .calls = 1,
                             .bytes = 8,
                             .busy_seconds = 0.5,
                             .exposed_seconds = 0.1,
                             .late_seconds = 0});
  }
  figures.kinds.push_back({.name = "gather", .operation = "all_gather", .of_parameters = true, .calls = 5});
  const auto rows = communication_rows(figures);
  ASSERT_EQ(rows.size(), 12U);
  EXPECT_EQ(rows[9].name, "control j");
  EXPECT_EQ(rows[10].name, "gather");
  EXPECT_EQ(rows[11].name, "10 other kinds");
  EXPECT_EQ(rows[11].calls, 10);
  EXPECT_EQ(rows[11].bytes, 80);
  EXPECT_DOUBLE_EQ(rows[11].busy_seconds, 5);
  figures.kinds.erase(figures.kinds.begin() + 11, figures.kinds.end() - 1);
  EXPECT_EQ(communication_rows(figures).size(), 12U) << "all of them fit";
}

TEST(CommunicationTable, AsJsonSaysNullOfWhatIsNotKnown) {
  const Json json = communication_json(two_ranks(), /*labels=*/false);
  EXPECT_FALSE(json.contains("labels"));
  EXPECT_EQ(json.at("waited_for_rank"), 1);
  const Json& gather = json.at("kinds").at(0);
  EXPECT_EQ(gather.at("bytes"), 3221225472);
  EXPECT_EQ(gather.at("of"), "parameters");
  EXPECT_DOUBLE_EQ(gather.at("algorithm_bandwidth").get<double>(), 805306368);
  EXPECT_DOUBLE_EQ(gather.at("bus_bandwidth").get<double>(), 402653184);
  EXPECT_DOUBLE_EQ(gather.at("share_of_run").get<double>(), 0.05);
  EXPECT_EQ(gather.at("longest_rank"), 0);
  const Json& contract = json.at("kinds").at(1);
  for (const char* key : {"busy_seconds", "late_seconds", "algorithm_bandwidth", "bus_bandwidth", "longest_rank"}) {
    EXPECT_TRUE(contract.at(key).is_null()) << key;
  }
  EXPECT_EQ(communication_json(two_ranks(), /*labels=*/true).at("labels").size(), 1U);
}

TEST(CommunicationSection, DrawsWhatIsExposedDarkAndTheRestLight) {
  const std::string html = communication_section(two_ranks());
  EXPECT_NE(html.find("<h2>Communication</h2>"), std::string::npos);
  EXPECT_NE(html.find(R"(<div class="fill" style="width:25.0%"></div><div class="fill soft" style="width:75.0%">)"),
            std::string::npos);
  EXPECT_NE(html.find("layers.&lt;0&gt; gather"), std::string::npos);
  EXPECT_EQ(html.find("layers.<0>"), std::string::npos);
  EXPECT_NE(html.find("most waiting was for rank 1"), std::string::npos);
  EXPECT_NE(html.find("Each label (1)"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
