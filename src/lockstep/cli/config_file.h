// A JSON file of flags as the first word of a command line, as ms-swift takes it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// What stands in the file: its flags as words, then the rest of the command line, which wins; and the variables of its
/// "ENV", for those that are not set.
struct Expanded {
  std::vector<std::string> args;
  std::map<std::string, std::string> variables;
};

/// `args` without program and verb; returned as they are when the first is no file name. Throws UserError(kUsage) for a
/// YAML file, a value that is no flag's, a file that is no JSON object.
Expanded expand_config_file(const std::vector<std::string>& args);

}  // namespace lockstep
