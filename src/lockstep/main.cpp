#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/cli/commands.h"
#include "lockstep/tensor/device_memory.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes is a failed write, told as such; training goes on without it
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that a limit (ulimit -f) does not let grow
  std::optional<lockstep::Host> host;
  try {
    host.emplace(lockstep::Host{.env = lockstep::Env::process(), .executable = lockstep::own_executable()});
  } catch (const lockstep::Error& error) {  // there is no memory for the roll call, through which errors are told
    std::cerr << "lockstep: error: " << error.what() << "\n";
    return static_cast<int>(error.code());
  }
  (void)lockstep::DeviceMemory::host();  // sets LibTorch's environment: later, other threads may be reading it
  int code = lockstep::run_command({argv + 1, argv + argc}, *host);
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
