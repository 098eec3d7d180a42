#include "lockstep/base/worker.h"

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>

#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

TEST(Worker, RunsItsBodyUnderItsName) {
  std::string name;
  Worker worker("a-name-of-more-than-fifteen", [&](const std::stop_token&) {
    std::array<char, 16> text{};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    name = text.data();
  });
  worker.join();
  EXPECT_EQ(name, "a-name-of-more-");
}

TEST(Worker, HandsItsExceptionToWhoeverJoinsOnce) {
  Worker worker("throws", [](const std::stop_token&) { throw std::runtime_error("from inside"); });
  try {
    worker.join();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "from inside");
  }
  EXPECT_NO_THROW(worker.join());
}

TEST(Worker, TheDestructorStopsAndJoins) {
  std::atomic<bool> ended = false;
  {
    const Worker worker("loops", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

TEST(Worker, AnExceptionThatNobodyAskedForIsDropped) {
  EXPECT_NO_THROW(Worker("throws", [](const std::stop_token&) { throw std::runtime_error("unheard"); }));
}

TEST(Worker, RequestStopEndsIt) {
  Worker worker("loops", [](const std::stop_token& stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  worker.request_stop();
  worker.join();
}

TEST(Deadline, PassesAndSaysWhatIsLeft) {
  const Deadline over(Clock::duration::zero());
  EXPECT_TRUE(over.passed());
  EXPECT_EQ(over.left(), Clock::duration::zero());
  const Deadline soon(std::chrono::hours(1));
  EXPECT_FALSE(soon.passed());
  EXPECT_GT(soon.left(), std::chrono::minutes(59));
}

TEST(Deadline, APatienceWithoutEndNeverPasses) {
  const Deadline never(Clock::duration::max());
  EXPECT_FALSE(never.passed());
  EXPECT_GT(never.left(), std::chrono::hours(24 * 365 * 100));
}

TEST(Clock, CpuSecondsGrowWithWork) {
  const double before = process_cpu_seconds();
  volatile double sum = 0;
  for (int i = 0; i < 2'000'000; ++i) sum = sum + i;
  EXPECT_GT(process_cpu_seconds(), before);
}

}  // namespace
}  // namespace lockstep
