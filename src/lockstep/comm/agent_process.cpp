#include "lockstep/comm/agent_process.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr auto kAddressPatience = std::chrono::seconds(20);

/// As --patience reads it: each phase by its name.
std::string patience_text(const JudgeOptions& judge) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kPhases; ++i) {
    parts.push_back(fmt::format("{}={}", phase_name(static_cast<Phase>(i)), judge.hard_seconds[i]));
  }
  return join(parts, ",");
}

}  // namespace

std::vector<std::string> agent_command_line(const AgentCommand& command, const World& world) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"--program", command.program},
      {"--node", std::to_string(world.node)},
      {"--num_nodes", std::to_string(world.num_nodes)},
      {"--first_rank", std::to_string(world.rank - world.local_rank)},
      {"--local_ranks", std::to_string(world.local_size)},
      {"--world_size", std::to_string(world.size)},
      {"--patience", patience_text(command.judge)},
      {"--soft_patience", fmt::format("{}", command.judge.soft_seconds)},
      {"--guard", command.strict ? "strict" : "default"}};
  std::vector<std::string> argv = command.argv;
  for (const auto& [name, value] : words) argv.insert(argv.end(), {name, value});
  return argv;
}

std::string spawn_agent(const AgentCommand& command, const World& world) {
  const std::string what = "starting the agent of this node";
  Pipe out(what + ": pipe");
  // A session of its own: signals to the launcher's group end the ranks, and the agent after them.
  Child agent = spawn({.argv = agent_command_line(command, world),
                       .what = what,
                       .out = out.write.get(),
                       .group = ProcessGroup::kOwnSession});
  out.write.close();
  std::string address = read_line(out.read.get(), kAddressPatience);
  if (address.empty()) throw Error(ExitCode::kInternal, what + ": it did not tell its address");
  agent.let_go();
  return address;
}

}  // namespace lockstep
