#include "lockstep/guard/agent.h"

#include <csignal>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/interrupted.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/guard/tree_key.h"

namespace lockstep {
namespace {

void print_now(const std::string& text) { fmt::print(stderr, "{}\n", shown_text(text)); }

}  // namespace

int run_agent(const Words& args, const Host& host) {
  AgentOptions options{.say = print_now};
  RunFlags flags;
  CLI::App app("the watcher of one node's ranks; started by them", "lockstep agent");
  app.add_option("--program", options.program);
  app.add_option("--node", options.node)->check(whole_number(0, kMostRanks));
  app.add_option("--num_nodes", options.num_nodes)->check(whole_number(0, kMostRanks));
  app.add_option("--first_rank", options.first_rank)->check(whole_number(0, kMostRanks));
  app.add_option("--local_ranks", options.local_ranks)->check(whole_number(0, kMostRanks));
  app.add_option("--world_size", options.world_size)->check(whole_number(0, kMostRanks));
  app.add_option("--patience", flags.patience);
  app.add_option("--soft_patience", flags.soft_patience)->check(real_number({.above = 0, .most = kMostSeconds}));
  app.add_option("--guard", flags.guard);
  if (!parse_flags(app, args)) return 0;
  options.judge = flags.judge();
  options.strict = flags.guard == "strict";
  options.job_secret = job_secret(host.env);
  for (const int signal : kEndingSignals) std::signal(signal, SIG_IGN);  // it ends with its ranks
  std::signal(SIGPIPE, SIG_IGN);
  Agent agent(options);
  // Who started us may be gone before it has read this, or before it has joined: then nobody else knows our address.
  const pid_t starter = ::getppid();
  if (!(std::cout << agent.address() << std::endl)) return static_cast<int>(ExitCode::kCommunication);
  const auto begun = Clock::now();
  return agent.watch_to_the_end([&] { return ::getppid() != starter || seconds_since(begun) > Agent::kNobodySeconds; });
}

}  // namespace lockstep
