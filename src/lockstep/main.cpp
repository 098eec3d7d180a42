#include <unistd.h>

#include "lockstep/cli/commands.h"

int main(int argc, char** argv) {
  // Without the destructors of libraries: transports may still have threads, and the work is done.
  ::_exit(lockstep::run_program({argv + 1, argv + argc}));
}
