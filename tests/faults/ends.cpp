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

void read_nothing() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  volatile const int* nothing = nullptr;
  [[maybe_unused]] const int value = *nothing;
}

void raise_in_data(Script& script) {
  replace(script, "rows", [](Rank& r) {
    r.injects();
    throw data_error("rows.jsonl:6: field \"images\": expected a list of paths, found a number", "write [\"a.png\"]");
  });
}

/// As above, of a kind that leaves a post-mortem.
void crash_in_data(Script& script) {
  replace(script, "rows", [](Rank& r) {
    r.injects();
    throw Error(ExitCode::kInternal, "rows.jsonl:6: the decoder gave up", "leave this row out");
  });
}

void bad_row_left_out(Script& script, Rank& rank) {
  if (rank.is_culprit()) {
    replace(script, "rows", [](Rank& r) { r.injects(); });
  }
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
      {.name = "sigkill",
       .summary = "SIGKILL",
       .expected = gone("was killed \\(SIGKILL\\)"),
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { send_self(SIGKILL); }); },
       .cure = Cure::kRestart,
       .bar = "death"},
      {.name = "sigkill_rank_0",
       .summary = "SIGKILL of rank 0, which hosts the meeting point",
       .expected = gone("was killed \\(SIGKILL\\)"),
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { send_self(SIGKILL); }); },
       .cure = Cure::kRestart,
       .culprit = 0,
       .bar = "death"},
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
       .cure = Cure::kRestart,
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
       .cure = Cure::kRestart,
       .bar = "death"},
      {.name = "sigstop",
       .summary = "SIGSTOP",
       .expected = {.kind = "stopped",
                    .op = "all_reduce",
                    .label = "loss",
                    .place = "optimizer",
                    .says = "SIGSTOP",
                    .fix = "--resume_from_checkpoint"},
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { send_self(SIGSTOP); }); },
       .cure = Cure::kRestart,
       .bar = "stopped"},
      {.name = "sigstop_rank_0",
       .summary = "SIGSTOP of rank 0",
       .expected = {.kind = "stopped",
                    .op = "all_reduce",
                    .label = "loss",
                    .place = "optimizer",
                    .says = "SIGSTOP",
                    .fix = "--resume_from_checkpoint"},
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { send_self(SIGSTOP); }); },
       .cure = Cure::kRestart,
       .culprit = 0,
       .bar = "stopped"},
      {.name = "sigsegv",
       .summary = "a wild pointer (SIGSEGV)",
       .expected = gone("crashed \\(SIGSEGV\\)"),
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { read_nothing(); }); },
       .cure = Cure::kRestart,
       .bar = "death"},
      {.name = "abort",
       .summary = "abort()",
       .expected = gone("crashed \\(SIGABRT\\)"),
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { std::abort(); }); },
       .cure = Cure::kRestart,
       .bar = "death"},
  };
}

std::vector<Fault> by_itself() {
  return {
      {.name = "exit_0",
       .summary = "exit(0) in the middle of a step",
       .expected = gone("exit code 0"),
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { std::exit(0); }); },
       .cure = Cure::kRestart,
       .bar = "death"},
      {.name = "exit_9",
       .summary = "ends with code 9, without a word",
       .expected = gone("exit code 9"),
       .inject = [](Script& s, Rank&) { before_loss(s, [](Rank&) { ::_exit(9); }); },
       .cure = Cure::kRestart,
       .bar = "death"},
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
       .mend =
           [](Script&, Rank& r) {
             if (r.is_culprit()) r.has_rows = false;
           },
       .bar = "death"},
      {.name = "dies_before_joining",
       .summary = "ends with code 9 before it meets the others",
       .expected = {.kind = "death", .place = "rank 1", .says = "before it joined", .fix = "its own lines"},
       .inject =
           [](Script&, Rank& r) {
             r.injects();
             ::_exit(9);
           },
       .cure = Cure::kRestart,
       .before_joining = true,
       .bar = "death"},
  };
}

std::vector<Fault> by_error() {
  return {
      {.name = "raises",
       .summary = "an exception while it loads data",
       .expected = {.kind = "error", .place = "rows\\.jsonl:6", .says = "\"images\"", .fix = "a\\.png"},
       .inject = [](Script& s, Rank&) { raise_in_data(s); },
       .mend = bad_row_left_out,
       .bar = "death"},
      {.name = "raises_then_barrier",
       .summary = "an exception whose clean-up makes a barrier",
       .expected =
           {.kind = "error", .op = ".", .place = "rows\\.jsonl:6", .says = "gave up", .fix = "leave this row out"},
       .inject =
           [](Script& s, Rank& r) {
             crash_in_data(s);
             r.clean_up = [&r] { r.control().barrier("clean-up"); };
           },
       .mend = bad_row_left_out,
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
       .mend = bad_row_left_out,
       .bar = "death"},
      {.name = "out_of_memory",
       .summary = "out of memory (an allocation fails)",
       .expected = {.kind = "error", .op = ".", .place = "lm_head", .says = "out of memory", .fix = "smaller batch"},
       .inject =
           [](Script& s, Rank&) {
             replace(s, "compute", [](Rank& r) {
               r.injects();
               memory_runs_out();
             });
           },
       .mend =
           [](Script& s, Rank& r) {
             if (r.is_culprit()) replace(s, "compute", [](Rank&) { const Tensor less = filled({1024}, 0); });
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
       .mend =
           [](Script& s, Rank& r) {
             if (r.is_culprit())
               replace(s, "compute", [](Rank&) {
                 try {
                   memory_runs_out();
                 } catch (const std::exception&) {
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
