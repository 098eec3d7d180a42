// The watcher of one node's ranks: started by the first of them, it says its address and goes on by itself until all ranks
// are gone.
#include <csignal>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/guard/agent.h"

/// agent LOCAL_RANKS WORLD_SIZE SOFT_SECONDS HARD_SECONDS
int main(int argc, char** argv) {
  using namespace lockstep;  // NOLINT: a program of one function
  if (argc != 5) return 2;
  AgentOptions options{.program = "lockstep guard",
                       .say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); }};
  options.local_ranks = std::atoi(argv[1]);
  options.world_size = std::atoi(argv[2]);
  options.judge.soft_seconds = std::atof(argv[3]);
  options.judge.hard_seconds.fill(std::atof(argv[4]));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);  // it ends with its ranks
  if (::fork() != 0) ::_exit(0);  // nobody's child: what ends a rank's children leaves it alone
  ::setsid();
  Agent agent(options);
  fmt::print("{}\n", agent.address());
  std::fflush(stdout);
  ::fclose(stdout);
  const auto begun = Clock::now();
  return agent.watch_to_the_end([&] { return seconds_since(begun) > Agent::kNobodySeconds; });
}
