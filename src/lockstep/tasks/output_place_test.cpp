#include "lockstep/tasks/output_place.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(OutputPlace, ADiskIsAskedForItsRoomBeforeAnythingIsComputed) {
  require_disk("--output", testing::TempDir(), 1, "vectors of 1 row");
  try {
    require_disk("--output", testing::TempDir() + "not/there", int64_t{1} << 62, "vectors of 9 rows");
    FAIL() << "no disk has 4 EiB";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(error.message().find("not/there, vectors of 9 rows need"), std::string::npos) << error.message();
    EXPECT_NE(error.hint().find("--force true"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
