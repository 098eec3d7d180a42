// A program in this one's stead, on its terminal: who stops this process means that one.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct Captured {
  int code = 0;        // 128 + signal when killed
  std::string output;  // empty unless captured
};

/// Runs the program with the terminal of this process, or with standard output caught, and waits. The signals that end
/// a job (interrupted.h) are the child's meanwhile; it ends when this process does, however that ends. Throws Error(kInternal) when it cannot be
/// started.
Captured run_in_foreground(const std::vector<std::string>& argv, bool capture = false);

}  // namespace lockstep
