#include <fcntl.h>
#include <unistd.h>

#include "lockstep/cli/commands.h"

int main(int argc, char** argv) {
  // Where one of the three is closed, what is opened next would stand in its place: the roll call's memory was read as a chat.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    break;
  }
  // Without the destructors of libraries: transports may still have threads, and the work is done.
  ::_exit(lockstep::run_program({argv + 1, argv + argc}));
}
