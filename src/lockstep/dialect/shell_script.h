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
  bool behind_branches =
      false;  // the script has decided something before (if, case, a loop): the last that is set counts
};

/// Comments, continued lines, quotes, whole-number arithmetic, and variables and arrays that the script itself sets are
/// understood, as words where they are not quoted; other variables stay as they are, and what is computed ($(…)) is not looked
/// into: every branch is read, as if all were taken. Commands without words are left out. Throws UserError(kData) where variables
/// hold others until they have 16 MiB.
std::vector<ShellCommand> shell_commands(const std::string& script);

}  // namespace lockstep
