#include "lockstep/base/interrupted.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/process.h"

namespace lockstep {
namespace {

TEST(Interrupted, EndsWith130AndAWord) {
  for (const int signal : kEndingSignals) {
    EXPECT_EXIT(
        {
          end_when_interrupted("lockstep test");
          ::raise(signal);
        },
        testing::ExitedWithCode(130), "^lockstep test: interrupted\n$");
  }
}

TEST(Interrupted, WhatIsIgnoredStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        end_when_interrupted("lockstep test");
        ::raise(SIGHUP);
        ::_exit(3);
      },
      testing::ExitedWithCode(3), "");
}

TEST(Interrupted, TakesBackWhatIsHalfMade) {
  const std::filesystem::path half = std::filesystem::path(testing::TempDir()) / "half_made";
  const auto make = [&] { std::ofstream(half) << "half"; };
  EXPECT_EXIT(
      {
        end_when_interrupted("lockstep test");
        make();
        const UndoneWhenInterrupted undone([&] { std::filesystem::remove(half); });
        ::raise(SIGTERM);
        ::sleep(30);
      },
      testing::ExitedWithCode(130), "interrupted");
  EXPECT_FALSE(std::filesystem::exists(half));
  EXPECT_EXIT(
      {
        end_when_interrupted("lockstep test");
        make();
        {
          const UndoneWhenInterrupted undone([&] { std::filesystem::remove(half); });
        }
        ::raise(SIGTERM);
      },
      testing::ExitedWithCode(130), "interrupted");
  EXPECT_TRUE(std::filesystem::exists(half)) << "it was done by then";
  std::filesystem::remove(half);
}

/// A handler would otherwise speak in a rank that is a copy of the launcher.
TEST(Interrupted, CopiesOfTheProcessDoNotInheritIt) {
  EXPECT_EXIT(
      {
        end_when_interrupted("lockstep test");
        Child copy = spawn({.body = [] {
          ::raise(SIGTERM);
          return 0;
        }});
        ::_exit(copy.wait().shell_code());
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace lockstep
