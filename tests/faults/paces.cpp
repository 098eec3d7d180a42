// Ranks that are slow, or do not come back.
#include <chrono>
#include <thread>

#include "fault.h"

namespace lockstep::faults {

/// A loop that the compiler must keep, under a name that stacks can show.
[[gnu::noinline]] void spin(std::chrono::duration<double> duration) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(duration);
  for (volatile uint64_t turns = 0; Clock::now() < end;) turns = turns + 1;
}

namespace {

using namespace std::chrono_literals;

constexpr auto kUsual = 20ms;
constexpr double kStallPatience = 6;
constexpr int64_t kSlowSteps = 30;

void slow_compute(Script& script, Rank&) {
  replace(script, "compute", [](Rank& r) {
    if (r.is_culprit()) r.injects();
    std::this_thread::sleep_for(r.is_culprit() ? 10 * kUsual : kUsual);
  });
}

}  // namespace

std::vector<Fault> paces() {
  return {
      {.name = "endless_loop",
       .summary = "an endless loop in forward",
       .expected = {"stall", "reduce_scatter", "lm_head grads", "forward pass \\(lm_head\\)", "spin",
                    "look at what it does: its stack"},
       .inject =
           [](Script& s, Rank&) {
             replace(s, "compute", [](Rank& r) {
               r.injects();
               spin(1h);
             });
           },
       .patience = kStallPatience,
       .bar = "stall"},
      {.name = "slow_compute",
       .summary = "a rank ten times slower in compute",
       .expected = {.kind = "notice", .says = "rank 1 is [0-9.]+x slower than the others in compute"},
       .inject = slow_compute,
       .others = slow_compute,
       .steps = kSlowSteps,
       .bar = "straggler"},
  };
}

}  // namespace lockstep::faults
