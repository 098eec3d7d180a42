// Ranks that end: well, too early, with an error, or by a signal.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <thread>

#include "fault.h"
#include <ATen/core/Tensor.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep::faults {
namespace {

using namespace std::chrono_literals;

constexpr const char* kBefore = "loss";  // the call that the others wait in

void before_loss(Script& script, void (*end)(Rank&)) {
  insert_before(script, kBefore, {"end", Phase::kStep, "optimizer", [end](Rank& r) {
                                    r.injects();
                                    end(r);
                                  }});
}

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(1h);
}

void send_self(int signal) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::kill(::getpid(), signal);
  sleep_for_ever();
}

/// As above, of a kind that leaves a post-mortem.
void crash_in_data(Script& script) {
  replace(script, "rows", [](Rank& r) {
    r.injects();
    throw Error(ExitCode::kInternal, "rows.jsonl:6: the decoder gave up", "leave this row out");
  });
}

void memory_runs_out() {
  constexpr int64_t kTooMuch = int64_t{1} << 46;
  const Tensor taken = empty({kTooMuch}, Dtype::kF32);
}

Expected gone(std::string_view says) {
  return {.kind = "death",
          .op = "all_reduce",
          .label = "loss",
          .place = R"(optimizer)",
          .says = says,
          .fix = "--resume_from_checkpoint"};
}

std::vector<Fault> by_signal() {
  return {
      {.name = "sigkill_while_others_are_idle",
       .summary = "SIGKILL while the others compute and wait for nobody",
       .expected =
           {.kind = "death", .op = ".", .place = "optimizer", .says = "SIGKILL", .fix = "--resume_from_checkpoint"},
       .inject =
           [](Script& s, Rank&) {
             before_loss(s, [](Rank&) {
               std::this_thread::sleep_for(200ms);
               send_self(SIGKILL);
             });
           },
       .others = [](Script& s, Rank&) { before_loss(s, [](Rank&) { std::this_thread::sleep_for(5s); }); },
       .bar = "death"},
      {.name = "child_left_behind",
       .summary = "SIGKILL of a rank whose child process runs on",
       .expected = gone("was killed \\(SIGKILL\\)"),
       .inject =
           [](Script& s, Rank&) {
             before_loss(s, [](Rank&) {
               if (::fork() == 0) {
                 ::setsid();
                 sleep_for_ever();
               }
               send_self(SIGKILL);
             });
           },
       .bar = "death"},
  };
}

std::vector<Fault> by_itself() {
  return {
      {.name = "finishes_early",
       .summary = "has fewer rows than the others and leaves its loop",
       .expected = {.kind = "early end",
                    .op = "all_gather",
                    .label = "step contract",
                    .place = "rank",
                    .says = "finished",
                    .fix = "leave its loop at the same step"},
       .inject =
           [](Script& s, Rank& r) {
             s.clear();
             r.injects();
             r.leaves_loop = true;
           },
       .bar = "death"},
  };
}

std::vector<Fault> by_error() {
  return {
      {.name = "raises_then_barrier",
       .summary = "an exception whose clean-up makes a barrier",
       .expected =
           {.kind = "error", .op = ".", .place = "rows\\.jsonl:6", .says = "gave up", .fix = "leave this row out"},
       .inject =
           [](Script& s, Rank& r) {
             crash_in_data(s);
             r.clean_up = [&r] { r.control().barrier("clean-up"); };
           },
       .bar = "death"},
      {.name = "raises_then_sleeps",
       .summary = "an exception whose clean-up blocks for ever",
       .expected =
           {.kind = "error", .op = ".", .place = "rows\\.jsonl:6", .says = "gave up", .fix = "leave this row out"},
       .inject =
           [](Script& s, Rank& r) {
             crash_in_data(s);
             r.clean_up = [] { sleep_for_ever(); };
           },
       .bar = "death"},
      {.name = "out_of_memory_caught",
       .summary = "out of memory, caught, and the rest of the step skipped",
       .expected = {.kind = "mismatch|deadlock",
                    .op = "reduce_scatter",
                    .label = "lm_head grads",
                    .place = "step\\.cpp:\\d+",
                    .says = "skipped",
                    .fix = "same calls in the same order"},
       .inject =
           [](Script& s, Rank&) {
             const auto at = std::find_if(s.begin(), s.end(), [](const Part& part) { return part.name == "compute"; });
             s.erase(at + 1, s.end());
             replace(s, "compute", [](Rank& r) {
               r.injects();
               try {
                 memory_runs_out();
               } catch (const std::exception&) {  // "skip the batch"
               }
             });
           },
       .bar = "deadlock"},
  };
}

}  // namespace

std::vector<Fault> ends() {
  std::vector<Fault> all = by_itself();
  for (auto part : {by_error(), by_signal()}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace lockstep::faults
