#include "lockstep/doctor/check_report.h"

#include <stdexcept>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(CheckReport, HasTheCodeOfItsFirstFailure) {
  CheckReport report;
  report.run("a", "one", [] { return CheckResults{fine("one", "good"), warning("two", "so so", "do this")}; });
  EXPECT_EQ(report.code(), ExitCode::kOk);
  report.run("b", "three", [] { return CheckResults{failure("three", "bad", "do that", ExitCode::kData)}; });
  report.run("b", "four", [] { return CheckResults{failure("four", "bad", "do that", ExitCode::kMemory)}; });
  EXPECT_EQ(report.code(), ExitCode::kData);
  EXPECT_EQ(report.summary(), "4 checks: 1 ok, 1 warning, 2 failures");
}

TEST(CheckReport, GoesOnAfterACheckThatThrows) {
  CheckReport report;
  report.run("a", "first", []() -> CheckResults { throw checkpoint_error("no such file", "copy it"); });
  report.run("a", "second", []() -> CheckResults { throw std::runtime_error("odd"); });
  report.run("a", "third", [] { return CheckResults{fine("third", "good")}; });
  ASSERT_EQ(report.results().size(), 3U);
  const CheckResult& first = report.results()[0];
  EXPECT_EQ(first.check, "a");
  EXPECT_EQ(first.name, "first");
  EXPECT_EQ(first.text, "no such file");
  EXPECT_EQ(first.cure, "copy it");
  EXPECT_EQ(first.code, ExitCode::kCheckpoint);
  EXPECT_EQ(report.results()[1].code, ExitCode::kInternal);
  EXPECT_FALSE(report.results()[1].cure.empty());
}

TEST(CheckReport, TellsEachResultAtOnce) {
  std::string told;
  CheckReport report([&](const CheckResult& result) { told += as_line(result); });
  report.run("machine", "disk", [] { return CheckResults{warning("disk", "nearly full", "rm old")}; });
  EXPECT_EQ(told,
            "warning  machine     disk            nearly full\n"
            "         -> rm old\n");
}

TEST(CheckResult, SurvivesTheWayThroughJson) {
  CheckResult result = failure("memory", "full", "less", ExitCode::kMemory);
  result.check = "machine";
  result.where = "node 1";
  result.table = {"a", "b"};
  EXPECT_EQ(result_from(as_json(result)), result);
  CheckResult good = fine("disk", "free");
  good.check = "machine";
  EXPECT_EQ(result_from(as_json(good)), good);
  EXPECT_TRUE(as_json(good)["cure"].is_null());
}

}  // namespace
}  // namespace lockstep
