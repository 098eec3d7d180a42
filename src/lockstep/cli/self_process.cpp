#include "lockstep/cli/self_process.h"

#include <iostream>

#include "lockstep/base/process.h"

namespace lockstep {
namespace {

/// Standard output of the child goes to `out` when it is not -1.
Child spawn_self(const std::filesystem::path& executable, const std::vector<std::string>& words, int out) {
  SpawnOptions options{.argv = {executable.string()}, .out = out};
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  std::cout.flush();
  return spawn(options);
}

}  // namespace

int run_self(const std::filesystem::path& executable, const std::vector<std::string>& words) {
  return spawn_self(executable, words, -1).wait().shell_code();
}

Captured capture_self(const std::filesystem::path& executable, const std::vector<std::string>& words) {
  Pipe out;
  Child child = spawn_self(executable, words, out.write.get());
  out.write.close();
  Captured captured;
  captured.output = read_all(out.read.get());
  captured.code = child.wait().shell_code();
  return captured;
}

}  // namespace lockstep
