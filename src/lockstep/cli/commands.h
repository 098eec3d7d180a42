// The table of verbs, and what becomes of an error at the border to the shell.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/host.h"

namespace lockstep {

/// `words`: the command line without the program. Prints what there is to print, errors included, and returns the exit
/// code. Nothing is thrown.
int run_command(const std::vector<std::string>& words, const Host& host);

/// All that this program does with such a command line, in the process's environment; the code to end with, without destructors.
int run_program(const std::vector<std::string>& words);

}  // namespace lockstep
