#include <cstdio>
#include <iostream>

#include <unistd.h>

#include "lockstep/base/process.h"
#include "lockstep/cli/commands.h"

int main(int argc, char** argv) {
  const lockstep::Host host{.env = lockstep::Env::process(), .executable = lockstep::own_executable()};
  const int code = lockstep::run_command({argv + 1, argv + argc}, host);
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  // Without the destructors of libraries: transports may still have threads, and the work is done.
  ::_exit(code);
}
