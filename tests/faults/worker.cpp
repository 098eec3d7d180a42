// A small job with a fault in it, for tests/faults/suite.py: starts its ranks itself, or is one of them.
//
//   fault_worker --fault sigkill --nproc 3 --out DIR      --list prints what there is, a line of JSON each
//   --steps N, --pause DATA_SECONDS,FORWARD_SECONDS,SLOW_FACTOR     a job without a fault (--fault none)
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <thread>

#include "fault.h"
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/process.h"
#include "lockstep/comm/launcher.h"

namespace lockstep::faults {

std::vector<Fault> all_faults() {
  std::vector<Fault> all = ends();
  for (auto part : {mismatches(), structures(), paces()}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

namespace {

constexpr int64_t kStepsForEver = 1'000'000;
constexpr auto kEndingPatience = std::chrono::seconds(10);

struct Options {
  std::string fault = "none", out = ".", transport = "auto", guard = "default";
  int nproc = 3, culprit = -1;
  int64_t steps = 0;
  double patience = 0, pause_data = 0, pause_forward = 0, slow = 1;
  bool list = false, uneven = false;
};

Options parse(const std::vector<std::string>& words, bool& done) {
  Options options;
  CLI::App app("a small job with a fault in it", "fault_worker");
  app.add_option("--fault", options.fault);
  app.add_option("--out", options.out);
  app.add_option("--nproc", options.nproc);
  app.add_option("--culprit", options.culprit);
  app.add_option("--steps", options.steps);
  app.add_option("--patience", options.patience);
  app.add_option("--transport", options.transport);
  app.add_option("--guard", options.guard);
  app.add_option("--pause_data", options.pause_data, "seconds, once, on the culprit");
  app.add_option("--pause_forward", options.pause_forward, "seconds, once, on the culprit");
  app.add_option("--slow", options.slow, "factor of the culprit's forward");
  app.add_flag("--uneven", options.uneven, "nested data of other sizes on each rank");
  app.add_flag("--list", options.list);
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    done = error.get_exit_code() == 0;
    if (!done) throw usage_error(error.what());
    std::cout << app.help();
  }
  return options;
}

Fault fault_named(const std::string& name) {
  for (const auto& fault : all_faults()) {
    if (fault.name == name) return fault;
  }
  if (name == "none") return {.name = "none"};
  throw usage_error(fmt::format("--fault {}: there is none of that name", name), "--list names them");
}

void print_list() {
  for (const auto& fault : all_faults()) {
    const Expected& e = fault.expected;
    std::cout << Json({{"name", fault.name},
                       {"summary", fault.summary},
                       {"kind", e.kind},
                       {"op", e.op},
                       {"label", e.label},
                       {"place", e.place},
                       {"says", e.says},
                       {"fix", e.fix},
                       {"culprit", fault.culprit},
                       {"patience", fault.patience},
                       {"bar", fault.bar}})
                     .dump()
              << '\n';
  }
}

JudgeOptions judge_of(const Options& options, const Fault& fault) {
  JudgeOptions judge;
  judge.hard_seconds.fill(options.patience > 0 ? options.patience : fault.patience);
  return judge;
}

int launch(const std::vector<std::string>& words, const Options& options, const Fault& fault, const Env& env) {
  std::vector<std::string> argv = {own_executable().string()};
  argv.insert(argv.end(), words.begin(), words.end());
  return launch_ranks(argv, env,
                      {.num_processes = options.nproc,
                       .program = "fault_worker",
                       .judge = judge_of(options, fault),
                       .guard = options.guard == "strict" ? Guard::kStrict : Guard::kDefault});
}

void edit(Script& script, Rank& rank, const Fault& fault) {
  if (rank.step < kFaultStep) return;
  const Edit chosen = rank.is_culprit() ? fault.inject : fault.others;
  if (chosen != nullptr) chosen(script, rank);
}

/// What a healthy job may do: be slow, wait long for data, compute long.
void pause(Script& script, const Rank& rank, const Options& options) {
  if (!rank.is_culprit() || options.fault != "none") return;
  if (options.slow > 1) {
    replace(script, "compute", [factor = options.slow](Rank& r) {
      std::this_thread::sleep_for(std::chrono::duration<double>(r.forward_seconds * factor));
    });
  }
  if (rank.step != kFaultStep) return;
  const auto sleeping = [](double seconds) {
    return [seconds](Rank&) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  };
  if (options.pause_data > 0) replace(script, "rows", sleeping(options.pause_data));
  if (options.pause_forward > 0) replace(script, "compute", sleeping(options.pause_forward));
}

struct AtExit {
  std::function<void()>& what;
  ~AtExit() {
    try {
      if (what) what();
    } catch (const std::exception&) {  // clean-up must not throw
    }
  }
};

int64_t steps_of(const Options& options, const Fault& fault) {
  if (options.steps > 0) return options.steps;
  return fault.steps > 0 ? fault.steps : kStepsForEver;
}

void train(Rank& rank, const Options& options, const Fault& fault) {
  const AtExit clean_up{rank.clean_up};
  const int64_t steps = steps_of(options, fault);
  for (rank.step = 1; rank.step <= steps && !rank.leaves_loop; ++rank.step) {
    Script script = usual_step(rank);
    edit(script, rank, fault);
    pause(script, rank, options);
    if (options.uneven) insert_uneven(script, rank);
    run_step(script, rank);
  }
}

int be_rank(const Options& options, const Fault& fault, const Env& env, const std::shared_ptr<Recorder>& recorder) {
  const World world = World::from_env(env);
  CommSetup comm;
  Rank rank{.comm = comm,
            .rank = world.rank,
            .size = world.size,
            .culprit = options.culprit >= 0 ? options.culprit : fault.culprit,
            .folder = options.out};
  recorder->set_post_mortem_dir(options.out);
  const auto patience = std::chrono::duration<double>(judge_of(options, fault).hard_seconds[0] + 10);
  comm = connect(world, {.transport = transport_from_flag(options.transport),
                         .patience = std::chrono::duration_cast<Clock::duration>(patience),
                         .recorder = recorder,
                         .agent = env.text("LOCKSTEP_AGENT").value_or("")});
  train(rank, options, fault);
  recorder->finish(0);
  if (recorder->has_ending()) return static_cast<int>(recorder->board().ending.read_any().exit_code);
  return rank.num_wrong == 0 ? 0 : 1;
}

/// The border, as in the command line: the roll call speaks where there is one.
int report(const std::exception& error, Recorder& recorder) {
  const Failure failure = describe_failure(error);
  recorder.say_last_words(failure);
  if (const auto ending = recorder.await_ending(kEndingPatience)) return static_cast<int>(ending->exit_code);
  fmt::print(stderr, "fault_worker: error: {}\n  hint: {}\n", failure.message, failure.hint);
  return static_cast<int>(failure.code);
}

int run(const std::vector<std::string>& words, const Env& env) {
  const auto recorder = std::make_shared<Recorder>();
  try {
    bool done = false;
    const Options options = parse(words, done);
    if (options.list) print_list();
    if (done || options.list) return 0;
    const Fault fault = fault_named(options.fault);
    return env.has("RANK") ? be_rank(options, fault, env, recorder) : launch(words, options, fault, env);
  } catch (const std::exception& error) {
    return report(error, *recorder);
  }
}

}  // namespace
}  // namespace lockstep::faults

int main(int argc, char** argv) {
  const int code = lockstep::faults::run({argv + 1, argv + argc}, lockstep::Env::process());
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);  // without the destructors of libraries: transports may still have threads
}
