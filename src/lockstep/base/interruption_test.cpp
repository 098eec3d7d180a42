#include "lockstep/base/interruption.h"

#include <gtest/gtest.h>

#include "lockstep/base/worker.h"

namespace lockstep {
namespace {

TEST(Interruption, EndsTheWorkOfTheThreadThatItIsSaidTo) {
  std::atomic<bool> called_off{false};
  interruption_point();  // nobody may interrupt it
  {
    const Interruptible scope(called_off);
    interruption_point();
    called_off = true;
    EXPECT_THROW(interruption_point(), Interrupted);
    Worker other("other", [](const std::stop_token&) { interruption_point(); });
    EXPECT_NO_THROW(other.join());
  }
  interruption_point();
}

}  // namespace
}  // namespace lockstep
