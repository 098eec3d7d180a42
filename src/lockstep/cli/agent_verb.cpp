#include "lockstep/cli/agent_verb.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/flags.h"
#include "lockstep/guard/agent.h"

namespace lockstep {
namespace {

constexpr double kNobodySeconds = 60;  // a node whose ranks never join has died before
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr int kAddressMs = 20'000;

void print_now(const std::string& text) { fmt::print(stderr, "{}\n", text); }

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(ExitCode::kInternal, fmt::format("starting the agent of this node: pipe: {}", std::strerror(errno)));
    }
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    ::close(read);
    ::close(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read = -1, write = -1;
};

std::string line_from(int fd) {
  std::string line;
  pollfd ready{fd, POLLIN, 0};
  for (char letter = 0; ::poll(&ready, 1, kAddressMs) > 0 && ::read(fd, &letter, 1) == 1 && letter != '\n';)
    line += letter;
  return line;
}

}  // namespace

int run_agent(const std::vector<std::string>& args, const Env& /*env*/) {
  AgentOptions options{.say = print_now};
  RunFlags flags;
  CLI::App app("the watcher of one node's ranks; started by them", "lockstep agent");
  app.add_option("--program", options.program);
  app.add_option("--node", options.node);
  app.add_option("--num_nodes", options.num_nodes);
  app.add_option("--first_rank", options.first_rank);
  app.add_option("--local_ranks", options.local_ranks);
  app.add_option("--world_size", options.world_size);
  app.add_option("--patience", flags.patience);
  app.add_option("--soft_patience", flags.soft_patience);
  app.add_option("--guard", flags.guard);
  if (!parse_flags(app, args)) return 0;
  options.judge = flags.judge();
  options.strict = flags.guard == "strict";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);  // it ends with its ranks
  Agent agent(options);
  std::cout << agent.address() << std::endl;
  const auto begun = Clock::now();
  bool told = false;
  while (!agent.all_gone()) {
    std::this_thread::sleep_for(kLook);
    const auto conclusion = agent.conclusion();
    if (conclusion && !told) print_now(conclusion->text);
    told = conclusion.has_value();
    if (seconds_since(begun) > kNobodySeconds && !agent.any_joined()) return 0;
  }
  const auto conclusion = agent.close();
  if (conclusion && !told) print_now(conclusion->text);
  return conclusion ? conclusion->exit_code : 0;
}

std::string spawn_agent(const std::string& program, const RunFlags& flags, const World& world) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"--program", program},
      {"--node", std::to_string(world.node)},
      {"--num_nodes", std::to_string(world.num_nodes)},
      {"--first_rank", std::to_string(world.rank - world.local_rank)},
      {"--local_ranks", std::to_string(world.local_size)},
      {"--world_size", std::to_string(world.size)},
      {"--patience", flags.patience},
      {"--soft_patience", fmt::format("{}", flags.soft_patience)},
      {"--guard", flags.guard}};
  std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string(), "agent"};
  for (const auto& [name, value] : words) argv.insert(argv.end(), {name, value});
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (auto& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  const Pipe pipe;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe.write, STDOUT_FILENO);
  ::posix_spawnattr_init(&attributes);
  // A session of its own: signals to the launcher's group end the ranks, and the agent after them.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, pointers[0], &actions, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  const std::string address = failed == 0 ? line_from(pipe.read) : std::string();
  if (address.empty()) {
    throw Error(ExitCode::kInternal, fmt::format("starting the agent of this node: {}",
                                                 failed != 0 ? std::strerror(failed) : "it did not tell its address"));
  }
  return address;
}

}  // namespace lockstep
