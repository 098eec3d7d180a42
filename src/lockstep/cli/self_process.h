// This program run again with other words: how the demo uses the same verbs that a person does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Runs `executable words…` with the terminal of this process and waits. Returns its exit code (128 + signal when
/// killed). Throws Error(kInternal) when it cannot be started.
int run_self(const std::filesystem::path& executable, const std::vector<std::string>& words);

/// The same, with standard output caught.
struct Captured {
  int code = 0;
  std::string output;
};
Captured capture_self(const std::filesystem::path& executable, const std::vector<std::string>& words);

}  // namespace lockstep
