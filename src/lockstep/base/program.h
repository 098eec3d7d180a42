// A program that a person names on the command line, with its arguments.
//
// Example:
//   const Program program = find_program("--metric", "./my_metric.py --lang en", env.text("PATH").value_or(""));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/process.h"

namespace lockstep {

struct Program {
  std::string flag;               // that names it
  std::string text;               // as the person wrote it
  std::string path;               // that is executed
  std::vector<std::string> argv;  // its name and arguments
  std::string stem() const;       // "my_metric" of "./my_metric.py --lang en"
};

/// Words are parted by blanks; '…', "…" and a backslash keep them together. A name without a slash is a file of this
/// folder, else one of `search_path`, which is as PATH: folders with colons between. Throws UserError(kUsage): nothing
/// there (with the nearest name of the folder), a folder, not executable, quotes that do not end.
Program find_program(std::string_view flag, const std::string& text, const std::string& search_path);

/// A process group of its own, without what a launcher has put into the environment: a library that is told that it is one
/// of several ranks would wait for the others. Throws UserError(kUsage) when the file cannot be executed (no #! line, no
/// such interpreter).
[[nodiscard]] Child start_program(const Program& program, int in, int out, int err, bool ends_with_thread);

/// The last lines of what a program wrote, each behind a line end and blanks; "" when there are none.
std::string last_lines(const std::string& text);

}  // namespace lockstep
