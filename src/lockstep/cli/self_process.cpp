#include "lockstep/cli/self_process.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Descriptors of the child: standard output goes to `out` when it is not -1.
pid_t spawn_self(const std::vector<std::string>& words, int out) {
  std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string()};
  argv.insert(argv.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  pointers.reserve(argv.size() + 1);
  for (auto& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (out >= 0) ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  std::cout.flush();
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw Error(ExitCode::kInternal, fmt::format("{} cannot be started: {}", argv[0], std::strerror(error)));
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int run_self(const std::vector<std::string>& words) { return wait_for(spawn_self(words, -1)); }

Captured capture_self(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ExitCode::kInternal, fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t pid = spawn_self(words, ends[1]);
  ::close(ends[1]);
  Captured captured;
  char buffer[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (size > 0) captured.output.append(buffer, static_cast<size_t>(size));
    if (size < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  captured.code = wait_for(pid);
  return captured;
}

}  // namespace lockstep
