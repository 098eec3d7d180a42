#include "lockstep/cli/number_bounds.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "lockstep/cli/flags.h"
#include "lockstep/cli/test_refusal.h"

namespace lockstep {
namespace {

TEST(NumberBounds, SayInWordsWhatANumberMustBe) {
  EXPECT_EQ(number_fault("nan", {.above = 0, .below = 1}), "expected a number above 0 and below 1, found \"nan\"");
  EXPECT_EQ(number_fault("2", {.least = 0, .most = 1}), "expected a number from 0 to 1, found \"2\"");
  EXPECT_EQ(number_fault("abc", {.least = 0}), "expected a number of at least 0, found \"abc\"");
  EXPECT_EQ(number_fault("-1", {.least = 0, .below = 1}), "expected a number of at least 0 and below 1, found \"-1\"");
  EXPECT_EQ(whole_number_fault("-1", 0, kMostCount), "expected a whole number of at least 0, found \"-1\"");
  EXPECT_EQ(whole_number_fault("9", 1, 8), "expected a whole number from 1 to 8, found \"9\"");
}

TEST(NumberBounds, TakeWhatIsInThemAndNothingElse) {
  for (const char* good : {"0", "1e-5", ".5", "+0.25", "0.999"}) {
    EXPECT_EQ(number_fault(good, {.least = 0, .below = 1}), "") << good;
  }
  for (const char* bad : {"", " ", "1", "inf", "-inf", "NaN", "1e400", "0x1p-2", "1,5", "0.5 ", "--", "1e"}) {
    EXPECT_NE(number_fault(bad, {.least = 0, .below = 1}), "") << bad;
  }
  EXPECT_EQ(whole_number_fault("+7", 1, kMostCount), "");
  for (const char* bad : {"", "010", "1.0", "1e3", "0x10", "99999999999999999999", "1_000", "1'000", "seven"}) {
    EXPECT_NE(whole_number_fault(bad, 0, kMostCount), "") << bad;
  }
}

TEST(NumberBounds, ANumberWithoutBoundsIsABug) {
  CLI::App app("", "lockstep verb");
  int64_t seed = 0;
  double rate = 0;
  app.add_option("--seed", seed)->check(seed_number());
  EXPECT_NE(refusal([&] {
              parse_flags(app, {"--seed", "-1"});
            }).find("expected a whole number from 0"),
            std::string::npos);
  app.add_option("--rate", rate);
  EXPECT_THROW(parse_flags(app, {}), InternalError);
}

}  // namespace
}  // namespace lockstep
