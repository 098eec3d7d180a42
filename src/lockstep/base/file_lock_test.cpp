#include "lockstep/base/file_lock.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(FileLock, IsHeldByOneAndNamesWhoHoldsIt) {
  const auto path = std::filesystem::temp_directory_path() / ("lockstep_lock_" + std::to_string(::getpid()));
  {
    const FileLock first(path);
    EXPECT_TRUE(first.held());
    const FileLock second(path);
    EXPECT_FALSE(second.held());
    EXPECT_NE(second.owner().find("process " + std::to_string(::getpid()) + " on "), std::string::npos);
  }
  EXPECT_TRUE(FileLock(path).held());
  std::filesystem::remove(path);
}

TEST(FileLock, GoesWithAProcessThatIsKilled) {
  const auto path = std::filesystem::temp_directory_path() / ("lockstep_lock_" + std::to_string(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(path);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(FileLock(path).held());
  std::filesystem::remove(path);
}

TEST(FileLock, AFolderThatCannotBeWrittenIsSomebodyElsesError) {
  EXPECT_TRUE(FileLock("/nowhere/at/all/.lock").held());
}

}  // namespace
}  // namespace lockstep
