// A program that a person names on the command line, with its arguments.
//
// Example:
//   const Program program = find_program("./my_metric.py --lang en", env.text("PATH").value_or(""));
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct Program {
  std::string text;               // as the person wrote it
  std::string path;               // that is executed
  std::vector<std::string> argv;  // its name and arguments
  std::string stem() const;       // "my_metric" of "./my_metric.py --lang en"
};

/// Words are parted by blanks; '…', "…" and a backslash keep them together. A name without a slash is a file of this
/// folder, else one of `search_path`, which is as PATH: folders with colons between. Throws UserError(kUsage): nothing
/// there (with the nearest name of the folder), a folder, not executable, quotes that do not end.
Program find_program(const std::string& text, const std::string& search_path);

}  // namespace lockstep
