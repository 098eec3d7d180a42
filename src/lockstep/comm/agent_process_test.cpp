#include "lockstep/comm/agent_process.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const World kPlace{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .node = 1, .num_nodes = 2};

AgentCommand shell(const std::string& script) { return {.argv = {"/bin/sh", "-c", script, "agent"}}; }

TEST(AgentProcess, IsToldItsNodeAndHowLongToWait) {
  AgentCommand command{.argv = {"/usr/bin/lockstep", "agent"}, .program = "lockstep sft", .strict = true};
  command.judge.hard_seconds.fill(600);
  command.judge.hard_seconds[static_cast<size_t>(Phase::kSave)] = 0.5;
  EXPECT_EQ(
      agent_command_line(command, kPlace),
      (std::vector<std::string>{"/usr/bin/lockstep",
                                "agent",
                                "--program",
                                "lockstep sft",
                                "--node",
                                "1",
                                "--num_nodes",
                                "2",
                                "--first_rank",
                                "4",
                                "--local_ranks",
                                "4",
                                "--world_size",
                                "8",
                                "--patience",
                                "start=600,load=600,data=600,forward=600,backward=600,step=600,save=0.5,evaluate=600,"
                                "generate=600,run=600,end=600",
                                "--soft_patience",
                                "3",
                                "--guard",
                                "strict"}));
}

TEST(AgentProcess, TellsItsAddressAndGoesOnInASessionOfItsOwn) {
  const std::string pid = spawn_agent(shell("echo $$; exec sleep 60"), kPlace);
  const pid_t agent = std::stoi(pid);
  EXPECT_EQ(::getsid(agent), agent);
  EXPECT_EQ(::kill(agent, SIGKILL), 0);
  EXPECT_EQ(::waitpid(agent, nullptr, 0), agent);
}

TEST(AgentProcess, OneThatSaysNothingIsAnError) {
  const auto message = [](const AgentCommand& command) {
    try {
      return spawn_agent(command, kPlace);
    } catch (const Error& error) {
      return error.message();
    }
  };
  EXPECT_EQ(message(shell("exit 0")), "starting the agent of this node: it did not tell its address");
  EXPECT_EQ(message({.argv = {"/nowhere/lockstep"}}), "starting the agent of this node: No such file or directory");
}

}  // namespace
}  // namespace lockstep
