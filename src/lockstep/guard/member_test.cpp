#include "lockstep/guard/member.h"

#include <functional>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/guard/agent.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {
namespace {

/// The main thread sits in what nobody can unblock.
TEST(Member, EndsTheProcessWhateverUnblockingItDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_with = [](const std::function<void()>& unblock) {
    Recorder recorder;
    const Agent agent({.program = "test", .grace_seconds = 1e6, .say = [](const std::string&) {}});
    const Member member(recorder, {.address = agent.address(),
                                   .identity = {.pid = ::getpid()},
                                   .grace_seconds = 0.1,
                                   .on_ending = [&](const Ending&) { unblock(); }});
    recorder.step_done(0);
    recorder.say_last_words({.code = ExitCode::kNumerics, .message = "loss is nan"});
    std::this_thread::sleep_for(std::chrono::seconds(30));
    ::_exit(99);
  };
  const auto ended = testing::ExitedWithCode(static_cast<int>(ExitCode::kNumerics));
  EXPECT_EXIT(end_with([] { throw std::runtime_error("the group cannot be aborted"); }), ended, "");
  EXPECT_EXIT(end_with([] { std::this_thread::sleep_for(std::chrono::seconds(30)); }), ended, "");
}

}  // namespace
}  // namespace lockstep
