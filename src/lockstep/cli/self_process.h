// This program run again with other words: how the demo uses the same verbs that a person does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct Captured {
  int code = 0;        // 128 + signal when killed
  std::string output;  // empty unless captured
};

/// Runs `executable words…` with the terminal of this process, or with standard output caught, and waits. SIGINT, SIGTERM
/// and SIGHUP are the child's meanwhile; it ends when this process does, however that ends. Throws Error(kInternal) when it
/// cannot be started.
Captured run_self(const std::filesystem::path& executable, const std::vector<std::string>& words, bool capture = false);

}  // namespace lockstep
