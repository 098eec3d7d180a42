// The command of another stack in a line of a shell: `swift sft …`, `llamafactory-cli train …`, `torchrun … train.py …`,
// `deepspeed … train.py …`, `accelerate launch … train.py …`, also behind nohup, env and their like.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/dialect/shell_script.h"

namespace lockstep {

struct StackCommand {
  std::string verb;  // of lockstep; empty: it is none
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;  // with what a launcher's flags say: NPROC_PER_NODE, NNODES, …
  std::vector<std::string> untaken;                // flags of a launcher that nothing here stands for
};

/// The verb and the flags of a command that starts training, answering or merging.
StackCommand stack_command(const ShellCommand& command);

}  // namespace lockstep
