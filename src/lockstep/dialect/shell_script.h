// Commands of a shell script as words: enough of the shell for the scripts that people start training with. Nothing is run.
//
// Example:
//   shell_commands("N=2\nNPROC_PER_NODE=$N swift sft \\\n  --model m")   // {NPROC_PER_NODE=2}, swift sft --model m
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct ShellCommand {
  std::map<std::string, std::string> environment;  // exported before it, or in front of it
  std::vector<std::string> words;
};

/// Comments, continued lines, quotes and variables that the script itself sets are understood; other variables stay as
/// they are, and what is computed ($(…), loops) is not looked into. Commands without words are left out.
std::vector<ShellCommand> shell_commands(const std::string& script);

/// The verb and the flags of a command that starts training, answering or merging in another stack: `swift sft …`,
/// `llamafactory-cli train …`, `torchrun … train.py …`, `deepspeed … train.py …`, `accelerate launch … train.py …`.
struct StackCommand {
  std::string verb;  // of lockstep; empty: it is none
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;  // with NPROC_PER_NODE of a launcher's flag
};
StackCommand stack_command(const ShellCommand& command);

}  // namespace lockstep
