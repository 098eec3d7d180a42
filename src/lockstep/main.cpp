#include <csignal>
#include <cstdio>
#include <iostream>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/cli/commands.h"
#include "lockstep/tensor/device_memory.h"

int main(int argc, char** argv) {
  const lockstep::Host host{.env = lockstep::Env::process(), .executable = lockstep::own_executable()};
  (void)lockstep::DeviceMemory::host();  // sets LibTorch's environment: later, other threads may be reading it
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes is a failed write, told as such; training goes on without it
  int code = lockstep::run_command({argv + 1, argv + argc}, host);
  if (!std::cout.flush() && code == 0) {
    std::cerr << "lockstep: error: standard output took not all that was to be printed\n"
                 "  hint: is the disk full, or has its reader gone?\n";
    code = static_cast<int>(lockstep::ExitCode::kData);
  }
  std::cerr.flush();
  std::fflush(nullptr);
  // Without the destructors of libraries: transports may still have threads, and the work is done.
  ::_exit(code);
}
