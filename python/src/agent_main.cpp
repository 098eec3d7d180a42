// The watcher of one node's ranks: started by the first of them, it says its name and goes on by itself until all ranks are
// gone.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/guard/agent.h"
#include "lockstep/guard/tree_key.h"

namespace {

int watch(const lockstep::AgentOptions& options) {
  lockstep::Agent agent(options);
  fmt::print("{}\n", agent.address());
  std::fflush(stdout);
  ::fclose(stdout);
  const auto begun = lockstep::Clock::now();
  return agent.watch_to_the_end([&] { return lockstep::seconds_since(begun) > lockstep::Agent::kNobodySeconds; });
}

}  // namespace

/// agent NAME LOCAL_RANKS WORLD_SIZE NODE NODES SOFT_SECONDS HARD_SECONDS MODE
int main(int argc, char** argv) {
  using namespace lockstep;  // NOLINT: a program of one function
  if (argc != 9) return 2;
  AgentOptions options{.program = "lockstep guard", .name = argv[1], .say = [](const std::string& text) {
                         fmt::print(stderr, "{}\n", text);
                       }};
  options.local_ranks = std::atoi(argv[2]);
  options.world_size = std::atoi(argv[3]);
  options.node = std::atoi(argv[4]);
  options.num_nodes = std::atoi(argv[5]);
  options.first_rank = options.node * options.local_ranks;
  options.judge.soft_seconds = std::atof(argv[6]);
  options.judge.hard_seconds.fill(std::atof(argv[7]));
  options.strict = std::strcmp(argv[8], "strict") == 0;
  options.only_tells = std::strcmp(argv[8], "notice") == 0;
  for (const int signal : kEndingSignals) std::signal(signal, SIG_IGN);  // it ends with its ranks
  std::signal(SIGPIPE, SIG_IGN);
  if (::fork() != 0) ::_exit(0);  // nobody's child: what ends a rank's children leaves it alone
  ::setsid();
  try {
    options.job_secret = job_secret(Env::process());
    return watch(options);
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
