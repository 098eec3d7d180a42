#include "lockstep/data/position_limit.h"

#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(PositionLimit, RefusesLongerRowsOnlyWhereTheyHaveNoOneResult) {
  const PositionLimit open{.positions = 512}, closed{.positions = 512, .ends = true};
  EXPECT_NO_THROW(open.check_length(513));
  EXPECT_NO_THROW(closed.check_length(0));
  EXPECT_NO_THROW(closed.check_length(512));
  try {
    closed.check_length(513);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("512 positions, found 513"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
