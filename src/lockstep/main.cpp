#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <unistd.h>

#include "lockstep/base/env.h"
#include "lockstep/cli/commands.h"

int main(int argc, char** argv) {
  const int code = lockstep::run_command({argv + 1, argv + argc}, lockstep::Env::process());
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  // Without the destructors of libraries: transports may still have threads, and the work is done.
  ::_exit(code);
}
